-- The people whom Apollo was not asked about for a month, by the same rule as the companies.
INSERT INTO jobs (queue, name, args, callsite)
SELECT 'apollo', 'apollo.RefreshPerson', jsonb_build_object('email', email), 'queues/apollo/enqueue_people.sql'
FROM people
WHERE refreshed_at < now() - interval '30 days'
  AND email NOT IN (
    SELECT args ->> 'email' FROM jobs
    WHERE queue = 'apollo' AND name = 'apollo.RefreshPerson' AND finished_at > now() - interval '7 days'
      AND args ->> 'email' IS NOT NULL
  )
ORDER BY refreshed_at, email LIMIT %(most)s
ON CONFLICT DO NOTHING  -- it waits already
