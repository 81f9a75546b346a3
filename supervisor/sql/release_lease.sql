-- The WHERE runs first: whoever hears the notification must find the lease free.
SELECT pg_notify('jobs_control', 'released ' || %(queue)s)
WHERE pg_advisory_unlock('jobs'::regclass::oid::bigint::bit(32)::int, hashtext(%(queue)s))
