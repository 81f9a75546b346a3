-- The mark by which every later run knows that the data in this database is invented.
CREATE TABLE IF NOT EXISTS paceline_sandbox AS SELECT now() AS made_at
