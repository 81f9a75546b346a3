-- The time zone's full name, no row where there is none. AT TIME ZONE alone would take more than people mean:
-- `+05:30` lies west of Greenwich to it, `IST` in Israel, and any letters with a digit are a zone.
SELECT name
FROM pg_timezone_names
WHERE lower(name) = lower(%(zone)s)
LIMIT 1
