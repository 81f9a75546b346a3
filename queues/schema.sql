-- The application's own tables. Idempotent: applied whole by each `paceline migrate`.

-- Answers of other services, shared by the queues' clients.
CREATE TABLE IF NOT EXISTS cache (
  key text PRIMARY KEY,
  value jsonb NOT NULL,
  etag text,
  expires_at timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS cache_expires_at ON cache (expires_at);

-- One for each domain, whoever told of it.
CREATE TABLE IF NOT EXISTS companies (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  domain text NOT NULL UNIQUE,  -- lower case, without www.
  name text NOT NULL,
  github_org text,              -- no vendor here tells it: entered by a person
  pitchbook_id text,
  apollo_id text,
  website text,
  linkedin_url text,
  industry text,
  description text,
  employees int,
  founded_year int,
  created_at timestamptz DEFAULT now() NOT NULL,
  enriched_at timestamptz       -- by Apollo
);
CREATE INDEX IF NOT EXISTS companies_enriched_at ON companies (enriched_at NULLS FIRST);
CREATE INDEX IF NOT EXISTS companies_pitchbook_id ON companies (pitchbook_id);
CREATE INDEX IF NOT EXISTS companies_github_org ON companies (lower(github_org));

CREATE TABLE IF NOT EXISTS people (
  email text PRIMARY KEY,  -- lower case
  company_id bigint REFERENCES companies,
  apollo_id text,
  name text,
  title text,
  linkedin_url text,
  github_url text,
  refreshed_at timestamptz DEFAULT now() NOT NULL
);
CREATE INDEX IF NOT EXISTS people_company_id ON people (company_id);

-- As PitchBook has them; the company is there as soon as its domain is known.
CREATE TABLE IF NOT EXISTS deals (
  pitchbook_id text PRIMARY KEY,
  company_id text NOT NULL,  -- companies.pitchbook_id
  company_name text NOT NULL,
  found_at timestamptz DEFAULT now() NOT NULL
);

CREATE TABLE IF NOT EXISTS repos (
  id bigint PRIMARY KEY,  -- GitHub's, which outlives a rename
  company_id bigint REFERENCES companies,
  owner text NOT NULL,
  name text NOT NULL,
  description text,
  language text,
  stars int,
  forks int,
  subscribers int,
  archived boolean NOT NULL,
  pushed_at timestamptz,
  refreshed_at timestamptz  -- read by itself, which alone tells its subscribers; null where only the list has told of it
);
CREATE INDEX IF NOT EXISTS repos_company_id ON repos (company_id);

CREATE TABLE IF NOT EXISTS summaries (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  company_id bigint NOT NULL REFERENCES companies,
  model text NOT NULL,
  text text NOT NULL,
  created_at timestamptz DEFAULT now() NOT NULL
);
CREATE INDEX IF NOT EXISTS summaries_company_id ON summaries (company_id, created_at);
