-- For each statement, not for each row: an INSERT ... SELECT of 10,000 rows calls it once. COPY fires it too.
CREATE OR REPLACE TRIGGER jobs_notify
AFTER INSERT ON jobs
REFERENCING NEW TABLE AS inserted
FOR EACH STATEMENT EXECUTE FUNCTION jobs_notify()
