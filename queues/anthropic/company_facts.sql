-- What is known of a company, as JSON for the model, with its most starred repositories.
SELECT name, jsonb_strip_nulls(jsonb_build_object(
  'name', name, 'domain', domain, 'industry', industry, 'employees', employees, 'founded', founded_year,
  'description', description,
  'repositories', (
    SELECT jsonb_agg(jsonb_build_object('name', top.name, 'language', top.language, 'stars', top.stars,
      'description', top.description))
    FROM (SELECT * FROM repos WHERE company_id = companies.id ORDER BY stars DESC NULLS LAST, id LIMIT 5) AS top
  )
))::text FROM companies WHERE id = %(company_id)s
