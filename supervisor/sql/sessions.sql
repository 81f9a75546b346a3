-- The server's clock, and the names of the engine's sessions on this database.
SELECT extract(epoch FROM clock_timestamp())::float8,
       to_json(ARRAY(SELECT application_name FROM pg_stat_activity
             WHERE datname = current_database() AND starts_with(application_name, 'paceline:')))
