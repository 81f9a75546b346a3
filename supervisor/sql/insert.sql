-- One pending row. No row comes back where a unique index (a dedupe key, a clock's minute) has it already.
-- The cast keeps the type of the answer, and so a caller's prepared plan, through `migrate --upgrade`.
INSERT INTO jobs (queue, name, args, callsite)
VALUES (%(queue)s, %(name)s, %(args)s::jsonb, %(callsite)s)
ON CONFLICT DO NOTHING
RETURNING id::bigint
