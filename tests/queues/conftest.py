"""Fixtures: the stand-ins, a database with the application's tables, and `work`, which runs one job."""

import json
from collections.abc import Iterator

import pytest

import queues
from deploy.sandbox import VENDORS
from deploy.sandbox.server import Sandbox, Vendor
from supervisor import DB
from supervisor.migrate import migrate
from tests.queues.harness import Work
from tests.support.databases import Databases
from tests.support.rows import Rows

_TABLES = "jobs, cache, companies, people, deals, repos, summaries"


@pytest.fixture(scope="package")
def all_vendors() -> Iterator[Sandbox]:
    with Sandbox([vendor() for vendor in VENDORS]) as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(all_vendors: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    """The stand-ins, told nothing yet; the environment leads the clients to them."""
    for vendor in all_vendors.vendors.values():
        vendor.reset()
    for name, value in all_vendors.environment().items():
        monkeypatch.setenv(name, value)
    return all_vendors


@pytest.fixture
def vendor(sandbox: Sandbox, request: pytest.FixtureRequest) -> Vendor:
    """The stand-in that the test's class (Contract), or else its module, names: `vendor_name`."""
    name = getattr(request.cls, "vendor_name", None) or request.module.vendor_name
    return sandbox.vendors[name]


@pytest.fixture(scope="package")
def package_database(databases: Databases) -> Iterator[str]:
    with databases.today() as url:
        workers = [new_worker(DB(url)) for new_worker in queues.registry]
        names = {name for worker in workers for name in worker.dedupe} | {entry.name for entry in queues.schedule}
        migrate(url, dedupe=names)
        rows = Rows(url)
        for file in queues.schema:
            rows.execute(file.read_text())
        rows.close()
        yield url


@pytest.fixture
def database(package_database: str) -> Iterator[str]:
    """One for all tests here, emptied for each; with the application's tables."""
    rows = Rows(package_database)
    rows.execute(f"TRUNCATE {_TABLES} RESTART IDENTITY")
    rows.close()
    yield package_database


@pytest.fixture
def work(database: str, rows: Rows, sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> Iterator[Work]:
    db = DB(database)
    yield Work(db, rows, caplog)
    db.close()
    everything = json.dumps(rows.execute("SELECT to_jsonb(jobs) FROM jobs")) + caplog.text
    assert "planted" not in everything, everything
