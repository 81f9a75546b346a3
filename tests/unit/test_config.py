"""Settings and the registry as data: what is chosen of it, what is deduped, how a database is named."""

from datetime import datetime
from typing import Any

import pytest

from supervisor import Context, Scheduled, Worker
from supervisor.config import Limits, Registry, Settings, database_name
from supervisor.errors import PacelineError, UsageError


def ok(ctx: Context, args: dict[str, Any]) -> str:
    return "ok"


def never(minute: datetime) -> bool:
    return False


APOLLO = Worker(queue="apollo", handlers={"apollo.A": ok, "apollo.B": ok}, dedupe={"apollo.A"})
GITHUB = Worker(queue="github", handlers={"github.A": ok, "github.B": ok})
SCHEDULE = (Scheduled("github", "github.B", never), Scheduled("apollo", "apollo.B", never))
REGISTRY = Registry((APOLLO, GITHUB), SCHEDULE)


def test_a_registry_dedupes_what_is_declared_and_what_is_scheduled() -> None:
    assert REGISTRY.dedupe == {"apollo.A", "apollo.B", "github.B"}


def test_no_queue_chosen_is_every_queue() -> None:
    assert REGISTRY.only(()) is REGISTRY


def test_of_the_chosen_queues_the_schedule_is_kept_too() -> None:
    chosen = REGISTRY.only(["github", "github"])
    assert chosen.workers == (GITHUB,)
    assert chosen.schedule == (SCHEDULE[0],)


def test_an_unknown_queue_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match=r"'gitlab'; the registry has: apollo, github") as refusal:
        REGISTRY.only(["apollo", "gitlab"])
    assert isinstance(refusal.value, PacelineError)
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://me:secret@db.example:6432/jobs", "db.example:6432/jobs"),
        ("host=db.example password=secret dbname=jobs user=me", "db.example:5432/jobs"),
        ("postgresql://me:secret@a.example:1,b.example:2/jobs", "a.example,b.example:1,2/jobs"),
        ("postgresql://me@/jobs?host=/run/postgresql&password=secret", "/run/postgresql:5432/jobs"),
        ("postgresql://me:secret@[::1]", "::1:5432/me"),
        ("postgresql://db.example/jobs?hostaddr=10.0.0.1&sslpassword=secret", "10.0.0.1:5432/jobs"),
        ("postgresql:///", "local socket:5432/?"),
    ],
)
def test_a_database_is_named_without_its_password(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PGHOST", "PGPORT", "PGDATABASE"):
        monkeypatch.delenv(variable, raising=False)
    assert database_name(url) == name


def test_what_the_url_leaves_out_is_taken_from_where_libpq_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in {"PGHOST": "db.example", "PGPORT": "6432", "PGDATABASE": "jobs"}.items():
        monkeypatch.setenv(variable, value)
    assert database_name("postgresql:///") == "db.example:6432/jobs"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hush%ush@db.example/jobs",  # a percent sign that is not encoded
        "postgresql://me:hush@[::1/jobs",
        "postgresql://me:hush@db.example/jobs?sslmode",
        "host=db.example password='hush",
    ],
)
def test_what_is_told_of_a_url_that_cannot_be_read_holds_no_password(url: str) -> None:
    """It goes to a terminal, or to the log of a service manager."""
    with pytest.raises(UsageError, match=r"DATABASE_URL is no libpq URI: [a-z]") as refusal:
        database_name(url)
    assert "hush" not in str(refusal.value)


def test_the_limits_are_those_that_operators_are_told() -> None:
    """And FAULTS 12: a silent LISTEN connection is noticed within a minute."""
    limits = Limits()
    assert (limits.grace, limits.settle, limits.sweep, limits.sweep_margin) == (10, 5, 300, 60)
    assert limits.ping + limits.call < 60


def test_a_host_is_known_by_the_name_that_its_container_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTNAME", "host-a")
    assert Settings("postgresql:///").host == "host-a"
