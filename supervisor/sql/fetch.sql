-- The cast keeps the type of the answer, and so the plan that a child has prepared, through `migrate --upgrade`.
SELECT id::bigint FROM jobs WHERE queue = %(queue)s AND status = 'pending' ORDER BY id LIMIT %(limit)s
