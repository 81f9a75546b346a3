-- For --burst: how many rows of these queues are not final.
SELECT count(*) FROM jobs WHERE queue = ANY(%(queues)s::text[]) AND status IN ('pending', 'started')
