-- The ids of a queue's jobs that ended with this outcome within so many seconds, oldest first.
SELECT id FROM jobs
WHERE queue = %(queue)s AND finished_at > now() - make_interval(secs => %(seconds)s) AND {outcome} = %(outcome)s
  AND name <> 'paceline.pause'
ORDER BY id
