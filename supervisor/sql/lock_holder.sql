-- The session whose transaction has held, for the longest, a lock on jobs that stands in the way of %(mode)s.
SELECT
  pid,
  coalesce(nullif(application_name, ''), 'no name'),
  coalesce(state, 'of another user'),
  coalesce(extract(epoch FROM clock_timestamp() - xact_start), 0)::int AS seconds
FROM pg_locks
JOIN pg_stat_activity USING (pid)
WHERE locktype = 'relation'
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation = to_regclass('jobs')
  AND granted
  AND pid <> pg_backend_pid()
  AND (%(mode)s = 'ACCESS EXCLUSIVE' OR pg_locks.mode NOT IN ('AccessShareLock', 'RowShareLock'))
ORDER BY xact_start NULLS LAST
LIMIT 1
