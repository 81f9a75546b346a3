-- The companies that Apollo was not asked about for a month, those never asked about first. One that was asked about
-- this week is left for the next, whatever came of it, or those that Apollo does not know would be first for ever.
INSERT INTO jobs (queue, name, args, callsite)
SELECT 'apollo', 'apollo.IngestCompany', jsonb_build_object('domain', domain), 'queues/apollo/enqueue_companies.sql'
FROM companies
WHERE (enriched_at IS NULL OR enriched_at < now() - interval '30 days')
  AND domain NOT IN (
    SELECT args ->> 'domain' FROM jobs
    WHERE queue = 'apollo' AND name = 'apollo.IngestCompany' AND finished_at > now() - interval '7 days'
      AND args ->> 'domain' IS NOT NULL
  )
ORDER BY enriched_at NULLS FIRST, id LIMIT %(most)s
ON CONFLICT DO NOTHING  -- it waits already
