-- Ends another process's row; that process's own finalize, which is unconditional, may still correct it.
-- So may what its slot shows, once it is dead: `err: interrupted` without a cause is what a host writes that cannot know.
UPDATE jobs SET status = %(status)s, finished_at = now()
WHERE id = %(id)s AND status IN ('started', 'err: interrupted')
RETURNING id::bigint
