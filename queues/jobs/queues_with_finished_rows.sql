-- The distinct queues in the index, one step each: a DISTINCT would read ten million entries.
WITH RECURSIVE found AS (
  (SELECT queue FROM jobs WHERE finished_at IS NOT NULL ORDER BY queue LIMIT 1)
  UNION ALL
  SELECT (SELECT queue FROM jobs WHERE finished_at IS NOT NULL AND queue > found.queue ORDER BY queue LIMIT 1)
  FROM found WHERE found.queue IS NOT NULL
)
SELECT queue FROM found WHERE queue IS NOT NULL
