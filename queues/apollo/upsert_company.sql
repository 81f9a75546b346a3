-- What Apollo says of a domain; what it does not say stays as it was.
INSERT INTO companies AS known (
  domain, name, apollo_id, website, linkedin_url, industry, description, employees, founded_year, enriched_at
) VALUES (
  %(domain)s, coalesce(%(name)s, %(domain)s), %(id)s, %(website_url)s, %(linkedin_url)s, %(industry)s,
  %(short_description)s, %(estimated_num_employees)s, %(founded_year)s, now()
)
ON CONFLICT (domain) DO UPDATE SET
  name = coalesce(%(name)s, known.name),
  apollo_id = excluded.apollo_id,
  website = coalesce(excluded.website, known.website),
  linkedin_url = coalesce(excluded.linkedin_url, known.linkedin_url),
  industry = coalesce(excluded.industry, known.industry),
  description = coalesce(excluded.description, known.description),
  employees = coalesce(excluded.employees, known.employees),
  founded_year = coalesce(excluded.founded_year, known.founded_year),
  enriched_at = excluded.enriched_at
RETURNING id, github_org
