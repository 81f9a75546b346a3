SELECT id FROM jobs WHERE queue = %(queue)s AND status = 'pending' ORDER BY id LIMIT %(limit)s
