-- One pause a queue: a row that is never claimed, swept or cleaned while it lasts.
WITH former AS (
  UPDATE jobs SET status = 'skip: replaced by another pause', finished_at = now()
  WHERE queue = %(queue)s AND status = 'paused'
)
INSERT INTO jobs (queue, name, status, callsite, args)
VALUES (%(queue)s, 'paceline.pause', 'paused', 'paceline pause', jsonb_strip_nulls(jsonb_build_object(
  'until', now() + make_interval(secs => %(seconds)s), 'reason', %(reason)s::text, 'by', %(by)s::text)))
RETURNING id, args ->> 'until'
