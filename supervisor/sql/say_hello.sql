-- Every parent that listens hears that this one has met it.
SELECT pg_notify('jobs_control', 'hello ' || %(token)s)
