-- Pending rows for the arrays of one call; answers an id for each input in its order, 0 where the row was not new.
--
-- What RETURNING gives cannot tell which of two equal inputs was left out, nor promises an order. So the ids are
-- drawn first, in the order of the inputs (given), and the rows that went in are joined back to them. Drawing them
-- needs USAGE on the sequence. That is the column's own; on an older table it may be known by the column's default
-- only; where there is none, the call fails and says so, since an id of NULL would be a lost job.
--
-- The rows go in by key, not by id: two calls with the same deduped keys in two orders would deadlock.
WITH sequence AS (
  SELECT coalesce(
    pg_get_serial_sequence('jobs', 'id'),
    (
      SELECT min(needed.refobjid::regclass::text)
      FROM pg_attribute AS of_id
      JOIN pg_attrdef AS its_default ON its_default.adrelid = of_id.attrelid AND its_default.adnum = of_id.attnum
      JOIN pg_depend AS needed ON needed.classid = 'pg_attrdef'::regclass AND needed.objid = its_default.oid
      JOIN pg_sequence ON pg_sequence.seqrelid = needed.refobjid AND needed.refclassid = 'pg_class'::regclass
      WHERE of_id.attrelid = 'jobs'::regclass AND of_id.attname = 'id'
    ),
    '"sequence of jobs.id"'  -- no such relation
  )::regclass AS name
),
given AS MATERIALIZED (
  SELECT nextval((SELECT sequence.name FROM sequence)) AS id, place, queue, name, args::jsonb AS args
  FROM (
    SELECT *
    FROM unnest(%(queues)s::text[], %(names)s::text[], %(args)s::text[])
      WITH ORDINALITY AS input(queue, name, args, place)
    ORDER BY place
  ) AS inputs
),
inserted AS (
  INSERT INTO jobs (id, queue, name, args, callsite)
  OVERRIDING SYSTEM VALUE
  SELECT id, queue, name, args, %(callsite)s::text
  FROM given
  ORDER BY queue, name, md5(args::text), place
  ON CONFLICT DO NOTHING
  RETURNING id
)
SELECT coalesce(inserted.id, 0)::bigint
FROM given
LEFT JOIN inserted USING (id)
ORDER BY place
