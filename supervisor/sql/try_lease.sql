-- Never a blocking pg_advisory_lock: a waiting statement holds back vacuum for the whole database.
SELECT pg_try_advisory_lock('jobs'::regclass::oid::bigint::bit(32)::int, hashtext(%(queue)s))
