-- One scheduled job. ON CONFLICT covers both indexes: once per minute in the whole database, and dedupe.
INSERT INTO jobs (queue, name, args, callsite) VALUES (%(queue)s, %(name)s, %(args)s::jsonb, %(callsite)s)
ON CONFLICT DO NOTHING RETURNING id::bigint
