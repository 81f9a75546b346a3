-- What PitchBook says of a company; what it does not say stays, and so does what is known from elsewhere.
INSERT INTO companies AS known (domain, name, pitchbook_id, website, description, employees, founded_year) VALUES (
  %(domain)s, %(name)s, %(pitchbook_id)s, %(website)s, %(description)s, %(employees)s, %(founded_year)s
)
ON CONFLICT (domain) DO UPDATE SET
  pitchbook_id = excluded.pitchbook_id,
  website = coalesce(known.website, excluded.website),
  description = coalesce(known.description, excluded.description),
  employees = coalesce(known.employees, excluded.employees),
  founded_year = coalesce(known.founded_year, excluded.founded_year)
