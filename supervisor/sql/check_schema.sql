-- What the database has of the table jobs: one row with one jsonb value, whose shape is `Facts` in migrate.py.
-- It reads the catalogs alone and asks for no lock on jobs above ACCESS SHARE.
WITH jobs AS (
  SELECT oid, relkind, relnamespace
  FROM pg_class
  WHERE oid = to_regclass('jobs')
)
SELECT jsonb_build_object(
  'server', current_setting('server_version_num')::int,
  'schema', coalesce((SELECT nspname FROM pg_namespace JOIN jobs ON pg_namespace.oid = relnamespace), current_schema()),
  'kind', (SELECT relkind::text FROM jobs),
  'columns', coalesce((
    SELECT jsonb_object_agg(attname, jsonb_build_object(
      'type', typname, 'required', attnotnull, 'default', pg_get_expr(adbin, adrelid)
    ))
    FROM jobs
    JOIN pg_attribute ON attrelid = jobs.oid AND attnum > 0 AND NOT attisdropped
    JOIN pg_type ON pg_type.oid = atttypid
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
  ), '{}'),
  'indexes', coalesce((
    SELECT jsonb_object_agg(relname, jsonb_build_object(
      'valid', indisvalid,
      'unique', indisunique AND indimmediate,
      'primary', indisprimary,
      'keys', (
        SELECT string_agg(pg_get_indexdef(indexrelid, key, true), ', ' ORDER BY key)
        FROM generate_series(1, indnkeyatts) AS key
      ),
      'where', coalesce(pg_get_expr(indpred, indrelid), '')
    ))
    FROM jobs
    JOIN pg_index ON indrelid = jobs.oid
    JOIN pg_class ON pg_class.oid = indexrelid
  ), '{}'),
  'checks', coalesce((
    SELECT jsonb_agg(conname ORDER BY conname)
    FROM jobs
    JOIN pg_constraint ON conrelid = jobs.oid AND contype = 'c'
  ), '[]'),
  -- The body of the function that the trigger calls; null where the trigger is missing, disabled or another.
  'notify', (
    SELECT prosrc
    FROM jobs
    JOIN pg_trigger ON tgrelid = jobs.oid AND tgname = 'jobs_notify'
    JOIN pg_proc ON pg_proc.oid = tgfoid AND proname = 'jobs_notify' AND pronamespace = relnamespace
    WHERE tgtype = 4 -- AFTER, INSERT, for each statement
      AND tgnewtable = 'inserted'
      AND tgenabled IN ('O', 'A')
  )
) AS facts
