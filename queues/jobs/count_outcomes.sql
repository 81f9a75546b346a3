-- How the jobs of one queue ended on one UTC day: the index on (queue, finished_at) finds them.
SELECT outcome(status) AS outcome, count(*)
FROM jobs
WHERE queue = %(queue)s AND finished_at >= %(day)s::date AND finished_at < %(day)s::date + 1
GROUP BY 1
