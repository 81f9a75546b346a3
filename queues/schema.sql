-- The application's own tables. Idempotent: applied whole by each `paceline migrate`.

-- Answers of other services, shared by the queues' clients.
CREATE TABLE IF NOT EXISTS cache (
  key text PRIMARY KEY,
  value jsonb NOT NULL,
  etag text,
  expires_at timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS cache_expires_at ON cache (expires_at);
