SELECT pg_notify(%(channel)s, %(answer)s)
