-- By primary key, unconditional: the process that ran the job knows best.
UPDATE jobs SET status = %(status)s, finished_at = now() WHERE id = %(id)s
