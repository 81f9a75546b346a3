SELECT l.pid, coalesce(a.application_name, '')
FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid = 'jobs'::regclass AND l.objid = hashtext(%(queue)s)::bit(32)::bigint::oid
