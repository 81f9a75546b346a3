-- For the queues that stand by: whether the lease is free, and the name of the session that holds it.
SELECT standby.queue, holder.pid IS NULL, coalesce(activity.application_name, '')
FROM unnest(%(queues)s::text[]) AS standby(queue)
LEFT JOIN pg_locks holder
  ON holder.locktype = 'advisory' AND holder.granted AND holder.objsubid = 2
  AND holder.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND holder.classid = 'jobs'::regclass AND holder.objid = hashtext(standby.queue)::bit(32)::bigint::oid
LEFT JOIN pg_stat_activity activity ON activity.pid = holder.pid
