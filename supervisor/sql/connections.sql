-- How many sessions this role may have in all, and how many there are.
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
       (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend')
