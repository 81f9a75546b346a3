-- The ids of the oldest pending rows, in order; while an operator's pause lasts, instead of them one row: 0, the
-- pause's seconds to go (none: until it is resumed), and whose it is. The casts keep the types of the answer, and so
-- the plan that a child has prepared, through `migrate --upgrade`.
WITH pause AS MATERIALIZED (
  SELECT extract(epoch FROM (args ->> 'until')::timestamptz - clock_timestamp())::float8 AS seconds,
         'by ' || coalesce(args ->> 'by', '?') || coalesce(': ' || (args ->> 'reason'), '') AS whose
  FROM jobs
  WHERE queue = %(queue)s AND status = 'paused' AND coalesce((args ->> 'until')::timestamptz > now(), true)
  ORDER BY seconds DESC NULLS FIRST LIMIT 1
), pending AS (
  SELECT id::bigint AS id FROM jobs
  WHERE queue = %(queue)s AND status = 'pending' AND NOT EXISTS (SELECT FROM pause)
  ORDER BY jobs.id LIMIT %(limit)s
)
SELECT id, NULL::float8 AS seconds, NULL::text AS whose FROM pending
UNION ALL SELECT 0, seconds, whose FROM pause
ORDER BY id
