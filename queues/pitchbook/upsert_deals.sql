-- A page of deals; the companies of those that are new, where they are not known yet.
WITH given AS (
  SELECT DISTINCT ON (deal) deal, company, name
  FROM unnest(%(deals)s::text[], %(companies)s::text[], %(names)s::text[]) AS given (deal, company, name)
  ORDER BY deal
), written AS (
  INSERT INTO deals (pitchbook_id, company_id, company_name) SELECT deal, company, name FROM given
  ON CONFLICT (pitchbook_id) DO UPDATE SET company_id = excluded.company_id, company_name = excluded.company_name
  RETURNING company_id, xmax = 0 AS new  -- no transaction has ended an older version of the row
)
SELECT DISTINCT company_id FROM written
WHERE new AND NOT EXISTS (SELECT FROM companies WHERE companies.pitchbook_id = written.company_id)
ORDER BY company_id
