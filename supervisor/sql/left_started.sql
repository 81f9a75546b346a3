SELECT id::bigint, extract(epoch FROM started_at)::float8 FROM jobs
WHERE queue = %(queue)s AND status = 'started' ORDER BY id
