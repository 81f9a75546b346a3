-- What an organisation says of itself, where nobody else has said it.
UPDATE companies SET
  description = coalesce(description, nullif(%(description)s::text, '')),
  website = coalesce(website, nullif(%(blog)s::text, ''))
WHERE lower(github_org) = lower(%(org)s)
