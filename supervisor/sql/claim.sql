UPDATE jobs SET status = 'started', started_at = now() WHERE id = %(id)s AND status = 'pending'
RETURNING id::bigint, name::text, args::text, callsite::text, extract(epoch FROM created_at)::float8,
          extract(epoch FROM started_at - created_at)::float8
