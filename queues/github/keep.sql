-- An answer and its ETag, for some days more.
INSERT INTO cache (key, value, etag, expires_at) VALUES (
  %(key)s, %(value)s, %(etag)s, now() + make_interval(days => %(days)s)
)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, etag = excluded.etag, expires_at = excluded.expires_at
