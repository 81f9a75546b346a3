-- How the same work has ended of late: a walk through the window in the index on (queue, finished_at).
SELECT status FROM jobs
WHERE queue = %(queue)s AND finished_at > now() - make_interval(days => %(days)s)
  AND name = %(name)s AND args @> jsonb_build_object('company_id', %(company_id)s::bigint)
ORDER BY finished_at DESC
