-- Repositories by GitHub's id, so that a renamed one stays the same; the company is its owner's, where we know one.
INSERT INTO repos AS known (
  id, company_id, owner, name, description, language, stars, forks, subscribers, archived, pushed_at, refreshed_at
)
SELECT DISTINCT ON (given.id)
  given.id,
  (SELECT id FROM companies WHERE lower(github_org) = lower(given.owner ->> 'login') ORDER BY id LIMIT 1),
  given.owner ->> 'login', given.name, given.description, given.language, given.stargazers_count, given.forks_count,
  given.subscribers_count, given.archived, given.pushed_at, CASE WHEN %(by_themselves)s THEN now() END
FROM jsonb_to_recordset(%(repositories)s::jsonb) AS given (
  id bigint, owner jsonb, name text, description text, language text, stargazers_count int, forks_count int,
  subscribers_count int, archived boolean, pushed_at timestamptz
)
ORDER BY given.id
ON CONFLICT (id) DO UPDATE SET
  company_id = excluded.company_id,
  owner = excluded.owner,
  name = excluded.name,
  description = excluded.description,
  language = excluded.language,
  stars = excluded.stars,
  forks = excluded.forks,
  subscribers = coalesce(excluded.subscribers, known.subscribers),
  archived = excluded.archived,
  pushed_at = excluded.pushed_at,
  refreshed_at = coalesce(excluded.refreshed_at, known.refreshed_at)
