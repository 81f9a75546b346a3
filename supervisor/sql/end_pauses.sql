-- Pauses whose time is over, which no fetch minds any more.
UPDATE jobs SET status = 'skip: pause over', finished_at = now()
WHERE status = 'paused' AND (args ->> 'until')::timestamptz < now()
