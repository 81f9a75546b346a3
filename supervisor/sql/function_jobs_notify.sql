-- Wakes each queue that the statement has given a pending row, whoever the writer is: once per queue.
-- What it uses is named with its schema, so the writer's search_path cannot change it; `SET search_path` on
-- the function would do the same for 2 us an insert (the whole trigger costs 5).
CREATE OR REPLACE FUNCTION jobs_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_catalog.pg_notify('jobs', queue)
  FROM inserted
  WHERE status OPERATOR(pg_catalog.=) 'pending'
  GROUP BY queue;
  RETURN NULL;
END
$$
