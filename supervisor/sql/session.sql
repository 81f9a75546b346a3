-- What every engine session sets for itself after connecting, whatever the role or the database has set.
-- After connecting, since `options` in the conninfo would overwrite the user's own.
SELECT set_config(wanted.name, wanted.value, false)
FROM (VALUES
  ('TimeZone', 'UTC'),
  ('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END),
  ('default_transaction_isolation', 'read committed'),
  ('lock_timeout', '1s'),
  ('statement_timeout', '0'),
  ('transaction_timeout', '0'),  -- since 17
  ('idle_session_timeout', '0'),
  ('idle_in_transaction_session_timeout', '0'),
  ('extra_float_digits', '1'),  -- or epochs are rounded
  ('tcp_keepalives_idle', '10'),
  ('tcp_keepalives_interval', '5'),
  ('tcp_keepalives_count', '3'),
  ('tcp_user_timeout', '30s'),  -- keepalives do not run while the server's words are not acknowledged
  ('client_connection_check_interval', '10s')
) AS wanted(name, value)
WHERE current_setting(wanted.name, true) IS NOT NULL
