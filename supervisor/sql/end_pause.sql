UPDATE jobs SET status = %(status)s, finished_at = now() WHERE queue = %(queue)s AND status = 'paused' RETURNING id
