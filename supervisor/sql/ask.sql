-- To every parent that listens. The answers come on a channel that only the asker listens on.
SELECT pg_notify('jobs_control', 'ask ' || %(question)s)
