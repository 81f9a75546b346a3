-- Rows that a unique index cannot take, each with the row that it repeats: the first one, or a started one, which
-- will end by itself. The braces are the index's; the last column counts all of the rows.
SELECT id, queue, name, first, count(*) OVER ()
FROM (
  SELECT id, queue, name, first_value(id) OVER same AS first, row_number() OVER same AS copy
  FROM jobs
  WHERE num_nulls({keys}) = 0 AND ({where})
  WINDOW same AS (PARTITION BY {keys} ORDER BY (status = 'started') DESC, id)
) AS keyed
WHERE copy > 1
ORDER BY id
LIMIT 10
