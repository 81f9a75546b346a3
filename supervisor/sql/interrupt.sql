-- Ends another process's row; that process's own finalize, which is unconditional, may still correct it.
UPDATE jobs SET status = %(status)s, finished_at = now() WHERE id = %(id)s AND status = 'started'
