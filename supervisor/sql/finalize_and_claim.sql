-- One durable commit per job: the end of one and the claim of the next travel together.
WITH ended AS (
  UPDATE jobs SET status = %(status)s, finished_at = now() WHERE id = %(id)s
)
UPDATE jobs SET status = 'started', started_at = now() WHERE id = %(next)s AND status = 'pending'
RETURNING id::bigint, name::text, args::text, callsite::text, extract(epoch FROM created_at)::float8,
          extract(epoch FROM started_at - created_at)::float8
