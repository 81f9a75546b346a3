-- One batch of expired rows. Those that somebody is renewing at this moment are left for the next time.
DELETE FROM cache WHERE key IN (
  SELECT key FROM cache WHERE expires_at < now() ORDER BY expires_at LIMIT %(batch)s FOR UPDATE SKIP LOCKED
)
