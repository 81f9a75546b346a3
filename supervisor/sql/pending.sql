SELECT queue::text, count(*), extract(epoch FROM clock_timestamp() - min(created_at))::float8
FROM jobs WHERE status = 'pending' GROUP BY queue
