UPDATE jobs SET status = %(status)s, finished_at = now()
WHERE id = ANY(%(ids)s::bigint[]) AND status = 'pending'
RETURNING id, queue || ' ' || name
