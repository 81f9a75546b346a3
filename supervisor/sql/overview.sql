-- One row per queue that has rows not final, or that is asked for: what waits, what runs, what ended last.
WITH known AS (
  SELECT DISTINCT queue FROM jobs WHERE status = 'pending'
  UNION SELECT DISTINCT queue FROM jobs WHERE status = 'started'
  UNION SELECT DISTINCT queue FROM jobs WHERE status = 'paused'
  UNION SELECT unnest(%(queues)s::text[])
  UNION SELECT split_part(substr(application_name, 10), '/', 1) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name ~ '^paceline:(?!parent/|command/)[^/]+/[0-9]+'
)
SELECT known.queue::text,
       (SELECT count(*) FROM jobs WHERE queue = known.queue AND status = 'pending'),
       (SELECT extract(epoch FROM clock_timestamp() - min(created_at))::float8
        FROM jobs WHERE queue = known.queue AND status = 'pending'),
       running.id::bigint, running.name::text, running.seconds,
       last.status::text, last.seconds,
       (SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND l.classid = 'jobs'::regclass AND l.objid = hashtext(known.queue)::bit(32)::bigint::oid)
FROM known
LEFT JOIN LATERAL (
  SELECT id, name, extract(epoch FROM clock_timestamp() - started_at)::float8 AS seconds
  FROM jobs WHERE queue = known.queue AND status = 'started' ORDER BY id LIMIT 1
) AS running ON true
LEFT JOIN LATERAL (
  SELECT status, extract(epoch FROM clock_timestamp() - finished_at)::float8 AS seconds
  FROM jobs WHERE queue = known.queue AND finished_at IS NOT NULL AND name <> 'paceline.pause' ORDER BY finished_at DESC LIMIT 1
) AS last ON true
ORDER BY known.queue
