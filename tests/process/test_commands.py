"""The commands, with good input and bad: what they print, what they change, their exit codes, and one line of advice.

Registries that `run` refuses are in test_registries.py, `status` is in test_status.py.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.preloaded import Preloaded
from tests.support.rows import Rows, Sql
from tests.support.supervised import ROOT, Paceline, environment

COMMANDS = ("run", "migrate", "enqueue", "status", "schedule", "retry", "cancel")
NOWHERE = "postgresql://nobody@127.0.0.1:9/none"  # the discard port: nobody listens
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded() as opened:
        yield opened


@pytest.fixture
def run_paceline(preloaded: Preloaded, database_in_use: str) -> Paceline:
    """As everywhere, but forked from a loaded process: there are many of them here."""
    return preloaded.for_database(database_in_use)


@pytest.fixture
def run_without(preloaded: Preloaded) -> Paceline:
    """The same with a database that is not there: for input that is refused before one is asked."""
    return preloaded.for_database(NOWHERE)


def refused(done: Done, code: int, *words: str) -> None:
    """It answered with this code and one line, which has these words."""
    assert done.returncode == code, done.stderr
    assert re.fullmatch(r"paceline[ a-z]*: [^\n]+\n", done.stderr), done.stderr
    assert done.stdout == ""
    assert [word for word in words if word not in done.stderr] == [], done.stderr


# The command itself


@pytest.mark.slow
def test_the_help_of_every_command_teaches_and_exits_0(run_without: Paceline) -> None:
    for command in ((), *((command,) for command in COMMANDS)):
        done = run_without(*command, "--help")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"usage: paceline{' ' * bool(command)}{''.join(command)} ")
        if not command:
            assert [
                word for word in (*COMMANDS, "DATABASE_URL", "PACELINE_DRAIN_TIMEOUT") if word not in done.stdout
            ] == []


@pytest.mark.slow
def test_the_installed_command_and_the_module_are_the_same(database: str) -> None:
    command = Path(sys.executable).with_name("paceline")
    if not command.exists():
        pytest.skip("the distribution is not installed beside this Python")
    for arguments in (["--help"], ["enqueue", "quick", "quick.Nobody"]):
        answers = [
            subprocess.run(
                [*program, *arguments], env=environment(database), cwd=ROOT, capture_output=True, text=True, check=False
            )
            for program in ([str(command)], [sys.executable, "-m", "supervisor"])
        ]
        assert len({(each.returncode, each.stdout, each.stderr) for each in answers}) == 1


@pytest.mark.parametrize("arguments", [(), ("rnu",), ("run", "--brust"), ("cancel", "one")])
def test_bad_usage_is_one_line_and_exits_2(arguments: tuple[str, ...], run_without: Paceline) -> None:
    refused(run_without(*arguments), 2)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("schedule",), ("status",), ("--help",)], ids=" ".join)
def test_a_reader_that_has_gone_is_no_trouble(arguments: tuple[str, ...], database: str) -> None:
    """`paceline status | head -1`, where head was quicker."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "supervisor", *arguments],
        env=environment(database, extra={"PYTHONUNBUFFERED": ""}),  # as usual; else each print is a write
        cwd=ROOT,
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


# run


def test_run_refuses_a_queue_that_no_worker_serves(run_without: Paceline) -> None:
    refused(run_without("run", "quick", "quik"), 2, "'quik'", "the registry has: clock, crash,", "sleeps")


@pytest.mark.parametrize("given", ["soon", "-1", "nan", "inf"])
def test_run_refuses_a_drain_timeout_that_is_no_number_of_seconds(given: str, run_without: Paceline) -> None:
    done = run_without("run", env={"PACELINE_DRAIN_TIMEOUT": given})
    refused(done, 2, "drain-timeout", repr(given), "seconds")


def test_run_refuses_a_log_format_that_there_is_not(run_without: Paceline) -> None:
    refused(run_without("run", env={"PACELINE_LOG": "xml"}), 2, "xml", "text or json")


def test_run_does_no_ddl_but_says_what_to_run(empty_database: str, run_paceline: Paceline, sql: Sql) -> None:
    done = run_paceline("run")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("there is no table jobs: run `paceline migrate`")
    assert len(done.stderr.splitlines()) == 1
    assert sql("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace") == []


@pytest.mark.parametrize("command", ["run", "migrate", "enqueue quick quick.Ok", "status"])
def test_a_database_url_that_cannot_be_read_is_refused(command: str, run_without: Paceline) -> None:
    done = run_without(*command.split(), url="postgresql://user@[::1/jobs")
    refused(done, 2, "paceline: DATABASE_URL")


@pytest.mark.parametrize("command", ["migrate", "enqueue quick quick.Ok", "retry 1"])
def test_a_database_that_is_not_there_is_one_line(command: str, run_without: Paceline) -> None:
    refused(run_without(*command.split()), 1, "127.0.0.1", "refused")


@pytest.mark.parametrize("command", ["enqueue quick quick.Ok", "status"])
def test_a_database_without_the_table_is_one_line(command: str, empty_database: str, run_paceline: Paceline) -> None:
    refused(run_paceline(*command.split()), 1, "run `paceline migrate`")


@pytest.mark.slow
def test_a_runtime_directory_that_nobody_can_have_is_one_line(database: str, request: pytest.FixtureRequest) -> None:
    """As a user who is not root, whose place is taken by a file."""
    user = os.geteuid() or 65534
    if os.geteuid() != user and not all(place.stat().st_mode & 0o001 for place in (ROOT, *ROOT.parents)):
        pytest.skip("the repository is closed to other users")
    directory = Path(tempfile.mkdtemp(dir="/tmp"))  # tmp_path is closed to other users
    request.addfinalizer(partial(shutil.rmtree, directory))
    (directory / f"paceline-{user}").touch()
    directory.chmod(0o777)
    program = (
        "import os, sys, supervisor.cli, tests.support.queues\n"
        f"os.seteuid({user})\n"
        "sys.exit(supervisor.cli.main(['run', 'quick']))"
    )
    env = environment(database, extra={"TMPDIR": str(directory), "XDG_RUNTIME_DIR": "", "RUNTIME_DIRECTORY": ""})
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    refused(done, 1, "no runtime directory", "XDG_RUNTIME_DIR")


# migrate


def test_migrate_says_what_it_did_and_a_second_one_finds_nothing_to_do(
    empty_database: str, run_paceline: Paceline
) -> None:
    first, second = run_paceline("migrate"), run_paceline("migrate")
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.splitlines()[0] == "created table jobs"
    assert "test.Dedupe" in first.stdout
    assert (second.returncode, second.stdout, second.stderr) == (0, "up to date\n", "")


def test_migrate_refuses_a_zone_that_there_is_not(run_paceline: Paceline) -> None:
    refused(run_paceline("migrate", "--upgrade", "Mars/Olympus"), 2, "Mars/Olympus", "such as UTC")


# enqueue


def test_enqueue_prints_the_id_of_a_pending_row(run_paceline: Paceline, rows: Rows) -> None:
    done = run_paceline("enqueue", "quick", "quick.Echo", '{"text": "ünïcode", "more": [1, null]}')
    assert (done.returncode, done.stderr) == (0, "")
    row = rows.row(int(done.stdout))
    assert (row.queue, row.name, row.status) == ("quick", "quick.Echo", "pending")
    assert row.args == {"text": "ünïcode", "more": [1, None]}
    assert row.callsite == "paceline enqueue"


def test_enqueue_prints_0_where_the_job_is_pending_already(run_paceline: Paceline, rows: Rows) -> None:
    first, second = (run_paceline("enqueue", "test", "test.Dedupe").stdout for _ in range(2))
    assert (int(first) > 0, second) == (True, "0\n")
    assert rows.statuses("test") == ["pending"]


@pytest.mark.parametrize(
    ("queue", "name", "args", "words"),
    [
        ("quik", "quick.Ok", "{}", ["no worker for queue 'quik'", "the registry has:"]),
        ("quick", "quick.Nobody", "{}", ["quick has no job 'quick.Nobody'", "quick.Echo"]),
        ("quick", "quick.Ok", "{", ["args of quick.Ok", "column 2"]),
        ("quick", "quick.Ok", "[1]", ["JSON object", "[1]"]),
        ("quick", "quick.Ok", "null", ["JSON object"]),
        ("quick", "quick.Echo", '{"text": 1}', ["args of quick.Echo", "Expected `str`, got `int`", "$.text"]),
        ("quick", "quick.Echo", "{}", ["missing required field `text`"]),
        # FAULTS 25, from the command line
        ("quick", "quick.Ok", '{"ratio": NaN}', ["args of quick.Ok"]),
        ("quick", "quick.Ok", '{"text": "\\u0000"}', ["args of quick.Ok", "args.text", "\\u0000"]),
        ("quick", "quick.Ok", '{"text": "\\ud800"}', ["args of quick.Ok"]),
        ("quick", "quick.Ok", f'{{"id": {"9" * 5000}}}', ["args of quick.Ok", "digits"]),
        ("quick", "quick.Ok", f'{{"deep": {"[" * 150}{"]" * 150}}}', ["args of quick.Ok", "levels"]),
        ("quick", "quick.Ok", "[" * 20_000, ["args of quick.Ok"]),
        ("quick", "quick.Ok", os.fsdecode(b'{"text": "\xff"}'), ["args of quick.Ok"]),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else None,
)
def test_enqueue_refuses_what_no_worker_could_run(
    queue: str, name: str, args: str, words: list[str], run_without: Paceline
) -> None:
    """Before the database is asked."""
    refused(run_without("enqueue", queue, name, args), 2, *words)


# retry and cancel


def test_retry_makes_new_rows_and_leaves_the_old(run_paceline: Paceline, rows: Rows) -> None:
    old = [rows.insert("quick", "quick.Echo", {"text": text}, status="err: no") for text in ("a", "b")]
    done = run_paceline("retry", *map(str, old))
    assert (done.returncode, done.stderr) == (0, "")
    new = [rows.row(int(line)) for line in done.stdout.split()]
    assert [(row.name, row.args, row.status, row.started_at) for row in new] == [
        ("quick.Echo", {"text": "a"}, "pending", None),
        ("quick.Echo", {"text": "b"}, "pending", None),
    ]
    assert [row.callsite for row in new] == [f"paceline retry {job}" for job in old]
    assert [rows.status(job) for job in old] == ["err: no", "err: no"]


def test_cancel_ends_pending_jobs_and_says_which(run_paceline: Paceline, rows: Rows) -> None:
    job = rows.insert("quick", "quick.Ok")
    done = run_paceline("cancel", str(job))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{job} quick quick.Ok\n", "")
    row = rows.row(job)
    assert re.fullmatch(r"skip: cancelled by \S.*", row.status)
    assert row.finished_at is not None
    assert row.started_at is None


@pytest.mark.parametrize("command", ["retry", "cancel"])
def test_with_one_wrong_id_nothing_is_changed(command: str, run_paceline: Paceline, rows: Rows) -> None:
    """An unknown one; one that is started; one that is pending, or final."""
    pending, running, final = (rows.insert("quick", "quick.Ok", status=each) for each in ("pending", "started", "ok"))
    good = final if command == "retry" else pending
    wrong = {"retry": pending, "cancel": final}[command]
    before = rows.all("quick")
    why = {"retry": "is not a finished job", "cancel": "is not pending"}[command]
    done = run_paceline(command, str(good), "987654", str(running), str(wrong))
    refused(done, 1, f"987654, {running}, {wrong} {why}", "nothing was changed")
    assert rows.all("quick") == before


# schedule


def test_schedule_lists_the_coming_day(run_without: Paceline) -> None:
    done = run_without("schedule")
    assert (done.returncode, done.stderr) == (0, "")
    heading, entry = (re.split(r"  +", line) for line in done.stdout.splitlines())
    assert heading == ["QUEUE", "JOB", "IN 24 H", "NEXT (UTC)"]
    assert entry[:3] == ["clock", "test.Dedupe", "1440"]
    assert re.fullmatch(r"(\d\d:\d\d, ){4}\d\d:\d\d \.\.\.", entry[3])


def test_schedule_as_json_has_every_tick(run_without: Paceline) -> None:
    done = run_without("schedule", "--json", registry="queues")
    assert (done.returncode, done.stderr) == (0, "")
    age, clean_up, *_ = json.loads(done.stdout)
    assert (age["queue"], age["name"], age["args"], len(age["ticks"])) == ("caches", "caches.Age", {}, 96)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:(00|15|30|45):00\+00:00", tick) for tick in age["ticks"])
    assert [tick[11:16] for tick in clean_up["ticks"]] == ["03:10"]


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["text", "json"])
def test_schedule_names_an_entry_that_fails(flags: tuple[str, ...], run_without: Paceline) -> None:
    """A predicate that raises; the service itself reports it and goes on."""
    done = run_without("schedule", *flags, registry="tests.support.queues_clock")
    refused(done, 1, "ticks", "ticks.Never", "LookupError: no such minute")


GOOD = """
from supervisor import Scheduled, Worker

registry = [lambda db: Worker(queue="good", handlers={{"good.Ok": lambda ctx, args: "ok"}})]
schedule = [Scheduled("good", "good.Ok", lambda minute: True, {args})]
"""


@pytest.mark.parametrize(
    ("args", "shown"), [("{'ids': {2, 1}}", {"ids": [1, 2]}), ("{'ratio': float('nan')}", None)], ids=["set", "NaN"]
)
def test_schedule_shows_the_args_that_the_clock_would_enqueue(
    args: str, shown: dict[str, list[int]] | None, run_without: Paceline, tmp_path: Path
) -> None:
    (tmp_path / "good_queues.py").write_text(GOOD.format(args=args))
    done = run_without("schedule", "--json", registry="good_queues", env={"PYTHONPATH": str(tmp_path)})
    if shown is None:
        refused(done, 1, "schedule entry good good.Ok", "args.ratio: NaN is not JSON")
    else:
        assert (done.returncode, done.stderr) == (0, "")
        assert [entry["args"] for entry in json.loads(done.stdout)] == [shown]
