-- The queue's last end: its status, how long ago, and how long the job took. For the throttle after a restart.
SELECT status::text, extract(epoch FROM clock_timestamp() - finished_at)::float8,
       coalesce(extract(epoch FROM finished_at - started_at), 0)::float8
FROM jobs WHERE queue = %(queue)s AND finished_at IS NOT NULL AND name <> 'paceline.pause' ORDER BY finished_at DESC LIMIT 1
