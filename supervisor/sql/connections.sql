-- The tightest of the limits on this role's sessions: how many it allows, how many there are. All of them show
-- their datid, to whoever asks; no limit but the server's holds for a superuser.
SELECT allowed, used::int
FROM pg_roles, pg_database, (
  SELECT count(*) AS every, count(*) FILTER (WHERE usename = session_user) AS of_role,
         count(*) FILTER (WHERE datname = current_database()) AS of_database
  FROM pg_stat_activity WHERE datid IS NOT NULL
) AS sessions, LATERAL (VALUES
  (current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
   - coalesce(current_setting('reserved_connections', true)::int, 0), every),  -- the latter since 16
  (CASE WHEN NOT rolsuper THEN rolconnlimit END, of_role),
  (CASE WHEN NOT rolsuper THEN datconnlimit END, of_database)
) AS limits(allowed, used)
WHERE rolname = session_user AND datname = current_database() AND allowed >= 0
ORDER BY allowed - used
LIMIT 1
