-- Of those: the living ones that were pushed to since they were read by themselves, but none twice a day.
SELECT owner, name FROM repos
WHERE id = ANY(%(ids)s) AND NOT archived AND pushed_at > now() - interval '90 days'
  AND (refreshed_at IS NULL OR refreshed_at < least(pushed_at, now() - interval '1 day'))
ORDER BY pushed_at DESC, id
