-- One batch of finished rows past retention, of one queue: the index on (queue, finished_at) finds them.
DELETE FROM jobs WHERE id IN (
  SELECT id FROM jobs
  WHERE queue = %(queue)s AND finished_at < now() - make_interval(secs => %(seconds)s)
  ORDER BY finished_at LIMIT %(batch)s
)
