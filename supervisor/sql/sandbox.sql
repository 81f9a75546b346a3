-- Whether a sandbox made this database its own, and whether it has a table of anybody's.
SELECT to_regclass('paceline_sandbox') IS NOT NULL AS ours, EXISTS (
  SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
  WHERE relkind IN ('r', 'p', 'f') AND nspname <> 'information_schema' AND nspname !~ '^pg_'
) AS used
