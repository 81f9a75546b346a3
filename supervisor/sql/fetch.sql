-- One row: the ids of the oldest pending rows, in order, as one text; while an operator's pause lasts, none, and the
-- pause's seconds to go (none: until it is resumed), and whose it is. A row for each id would take a child longer to
-- read than the server to find. The casts keep the types of the answer, and so the plan that a child has prepared,
-- through `migrate --upgrade`.
WITH pause AS MATERIALIZED (
  SELECT extract(epoch FROM (args ->> 'until')::timestamptz - clock_timestamp())::float8 AS seconds,
         'by ' || coalesce(args ->> 'by', '?') || coalesce(': ' || (args ->> 'reason'), '') AS whose
  FROM jobs
  WHERE queue = %(queue)s AND status = 'paused' AND coalesce((args ->> 'until')::timestamptz > now(), true)
  ORDER BY seconds DESC NULLS FIRST LIMIT 1
)
SELECT array_to_string(ARRAY(
         SELECT id::bigint FROM jobs
         WHERE queue = %(queue)s AND status = 'pending' AND NOT EXISTS (SELECT FROM pause)
         ORDER BY jobs.id LIMIT %(limit)s
       ), ' ') AS ids, pause.seconds, pause.whose
FROM (SELECT) AS one LEFT JOIN pause ON true
