-- Where the sequence of jobs.id is behind the rows, as a restore of the rows alone leaves it, moves it past them.
-- Else ON CONFLICT takes each id that is there for a duplicate, and new jobs are lost without a word.
SELECT setval(%(sequence)s::regclass, last)
FROM (SELECT max(id) AS last FROM jobs) AS rows
WHERE last > coalesce(pg_sequence_last_value(%(sequence)s::regclass), 0)
