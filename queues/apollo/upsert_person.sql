-- What Apollo says of an address; the company is that of its domain, where we know one.
INSERT INTO people AS known (email, company_id, apollo_id, name, title, linkedin_url, github_url) VALUES (
  %(email)s, (SELECT id FROM companies WHERE domain = %(domain)s),
  %(id)s, %(name)s, %(title)s, %(linkedin_url)s, %(github_url)s
)
ON CONFLICT (email) DO UPDATE SET
  company_id = coalesce(excluded.company_id, known.company_id),
  apollo_id = excluded.apollo_id,
  name = coalesce(excluded.name, known.name),
  title = coalesce(excluded.title, known.title),
  linkedin_url = coalesce(excluded.linkedin_url, known.linkedin_url),
  github_url = coalesce(excluded.github_url, known.github_url),
  refreshed_at = now()
