SELECT queue, status FROM jobs WHERE id = %(id)s
