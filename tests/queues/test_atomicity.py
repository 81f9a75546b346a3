"""apollo.IngestCompany is one transaction: a child killed at any statement leaves its write and jobs, or neither."""

from contextlib import closing
from signal import SIGKILL

import psycopg
import pytest

from deploy.sandbox.companies import COMPANIES, Company
from deploy.sandbox.server import Sandbox
from tests.support.rows import Rows
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually

# Each of these stops for an advisory lock of its own number, which the test holds when it wants to kill there.
HOLD = """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_xact_lock(77, TG_ARGV[0]::int); RETURN NEW; END $$;
CREATE TRIGGER hold_1 BEFORE INSERT ON companies FOR EACH ROW EXECUTE FUNCTION hold(1);
CREATE TRIGGER hold_2 AFTER UPDATE ON companies FOR EACH ROW EXECUTE FUNCTION hold(2);
CREATE TRIGGER hold_3 BEFORE INSERT ON jobs FOR EACH ROW WHEN (NEW.queue = 'anthropic') EXECUTE FUNCTION hold(3);
CREATE TRIGGER hold_4 AFTER INSERT ON jobs FOR EACH ROW WHEN (NEW.queue = 'anthropic') EXECUTE FUNCTION hold(4);
CREATE TRIGGER hold_5 BEFORE INSERT ON jobs FOR EACH ROW WHEN (NEW.queue = 'github') EXECUTE FUNCTION hold(5);
CREATE TRIGGER hold_6 AFTER INSERT ON jobs FOR EACH ROW WHEN (NEW.queue = 'github') EXECUTE FUNCTION hold(6);
CREATE CONSTRAINT TRIGGER hold_7 AFTER UPDATE ON companies DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION hold(7);
"""
COMMIT = 7
RELEASE = "DROP FUNCTION hold CASCADE"


def at_lock(rows: Rows, number: int) -> int:
    """The server's process that waits there; 0 for none."""
    found = rows.execute("SELECT pid FROM pg_locks WHERE classid = 77 AND objid = %s AND NOT granted", number)
    return int(found[0][0]) if found else 0


def left(rows: Rows, company: Company) -> tuple[bool, int]:
    """Whether it was written, and the number of its follow-up jobs."""
    [(id, written)] = rows.execute(
        "SELECT id, enriched_at IS NOT NULL FROM companies WHERE domain = %s", company.domain
    )
    [(jobs,)] = rows.execute(
        "SELECT count(*) FROM jobs WHERE args IN (jsonb_build_object('company_id', %s::bigint),"
        " jsonb_build_object('org', %s::text))",
        id,
        company.github,
    )
    return written, jobs


@pytest.mark.slow
def test_a_child_killed_at_any_statement_leaves_the_write_and_its_follow_up_jobs_or_neither(
    run_supervisor: RunSupervisor, rows: Rows, sandbox: Sandbox
) -> None:
    rows.execute(HOLD)
    try:
        sup = run_supervisor("apollo", registry="queues", env=sandbox.environment())
        with closing(psycopg.connect(rows.url, autocommit=True)) as holder:
            for number, company in enumerate(COMPANIES[:COMMIT], 1):
                rows.execute(
                    "INSERT INTO companies (name, domain, github_org) VALUES (%s, %s, %s)",
                    company.name,
                    company.domain,
                    company.github,
                )
                holder.execute("SELECT pg_advisory_lock(77, %s)", (number,))
                job = rows.insert("apollo", "apollo.IngestCompany", {"domain": company.domain})
                backend = eventually(lambda number=number: at_lock(rows, number))
                sup.child("apollo").signal(SIGKILL)
                eventually(lambda job=job: rows.status(job) == "err: interrupted: SIGKILL (out of memory?)")
                holder.execute("SELECT pg_advisory_unlock_all()")
                eventually(
                    lambda backend=backend: not rows.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", backend)
                )
                allowed = [(False, 0), (True, 2)] if number == COMMIT else [(False, 0)]
                assert left(rows, company) in allowed, number
                # A finished job between two deaths: the next replacement is immediate too.
                nobody = rows.insert("apollo", "apollo.IngestCompany", {"domain": f"nobody-{number}.example"})
                eventually(lambda nobody=nobody: rows.status(nobody) == "fail: no match")
        job = rows.insert("apollo", "apollo.IngestCompany", {"domain": COMPANIES[0].domain})
        eventually(lambda: rows.status(job) == "ok")
        assert left(rows, COMPANIES[0]) == (True, 2)
    finally:
        rows.execute(RELEASE)
