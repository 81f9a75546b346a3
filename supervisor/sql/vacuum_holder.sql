-- Who keeps vacuum from removing dead rows, once for a minute or a thousand transactions. Other roles' sessions
-- show themselves only to a superuser or a member of pg_read_all_stats.
WITH holders AS (
  SELECT format('session %s (%s, %s, %s)', pid, coalesce(nullif(application_name, ''), 'no name'), usename, state) AS who,
         xact_start AS since, greatest(age(backend_xmin), age(backend_xid)) AS transactions
  FROM pg_stat_activity
  WHERE (datname = current_database() OR datname IS NULL) AND pid <> pg_backend_pid()
    AND backend_type <> 'autovacuum worker' AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
  UNION ALL
  SELECT format('prepared transaction %s', gid), prepared, age(transaction)
  FROM pg_prepared_xacts WHERE database = current_database()
  UNION ALL
  SELECT format('replication slot %s', slot_name), NULL, age(xmin) FROM pg_replication_slots WHERE xmin IS NOT NULL
)
SELECT who, extract(epoch FROM clock_timestamp() - since)::float8, transactions
FROM holders
WHERE since < clock_timestamp() - interval '1 minute' OR transactions >= 1000
ORDER BY transactions DESC
LIMIT 1
