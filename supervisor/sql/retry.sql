-- New rows for finished ones; the old rows stay as they ended. An id that deduplication stands in the way of gives 0.
WITH old AS MATERIALIZED (
  SELECT id, queue, name, args, nextval(pg_get_serial_sequence('jobs', 'id')) AS new
  FROM jobs WHERE id = ANY(%(ids)s::bigint[]) AND status NOT IN ('pending', 'started', 'paused')
), inserted AS (
  INSERT INTO jobs (id, queue, name, args, callsite) OVERRIDING SYSTEM VALUE
  SELECT new, queue, name, args, 'paceline retry ' || id FROM old ON CONFLICT DO NOTHING RETURNING id
)
SELECT old.id, coalesce(inserted.id, 0) FROM old LEFT JOIN inserted ON inserted.id = old.new
