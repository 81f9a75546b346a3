-- One migrate at a time in a database. It is asked again and again, never waited for: a waiting statement has a
-- snapshot, which the other's CREATE INDEX CONCURRENTLY would wait for in turn. The key is "paceline" in ASCII.
SELECT pg_try_advisory_lock(8097862892250558053)
