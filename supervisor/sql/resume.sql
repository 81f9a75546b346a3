-- Dates a claim anew before its handler begins: one that took long, or one whose process died before that.
UPDATE jobs SET started_at = now() WHERE id = %(id)s AND status = 'started'
RETURNING id::bigint, name::text, args::text, callsite::text, extract(epoch FROM created_at)::float8,
          extract(epoch FROM started_at - created_at)::float8
