-- Rows left `started` longer than their queue's limit (seconds), or with no start: their process is long dead.
UPDATE jobs SET status = %(status)s, finished_at = now()
FROM unnest(%(queues)s::text[], %(limits)s::float8[]) AS served(queue, seconds)
WHERE jobs.queue = served.queue AND jobs.status = 'started'
  AND (jobs.started_at IS NULL OR jobs.started_at < now() - make_interval(secs => served.seconds))
RETURNING jobs.id::bigint, jobs.queue::text, jobs.name::text
