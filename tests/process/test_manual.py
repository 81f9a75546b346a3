"""Each command, statement and variable in the operator's manual works as it is written there."""

import re
import shlex
import subprocess
from collections.abc import Callable

import pytest

from tests.support.rows import Rows
from tests.support.supervised import ROOT, Paceline, RunSupervisor
from tests.support.wait import eventually

MANUAL = (ROOT / "deploy" / "README.md").read_text()
REGISTRY = "tests.support.queues_manual"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", MANUAL, re.MULTILINE | re.DOTALL)
COMMANDS = sorted(
    {
        command
        for command in re.findall(r"`(paceline [a-z][^`]*)`", MANUAL)
        + [
            line
            for kind, block in BLOCKS
            if kind == "sh"
            for line in block.splitlines()
            if line.startswith("paceline ")
        ]
        if not re.search(r"\b[A-Z]{2,}\b", command)  # `paceline end ID` is a form, not a command
        and "paceline resume`" not in f"{command}`"  # nor is one without its queue
    }
)
STATEMENTS = [block for kind, block in BLOCKS if kind == "sql"]
STATEMENTS += [line.split('"')[3] for kind, block in BLOCKS for line in block.splitlines() if line.startswith("psql ")]
STATEMENTS += re.findall(r"`(SELECT [^`]*)`", MANUAL)


def prepare(command: str, run_paceline: Paceline, rows: Rows) -> None:
    """Bring about what the command acts on, with the ids that the manual uses."""

    def job(id: int, text: str = "hello", status: str = "pending") -> None:
        rows.execute("SELECT setval(pg_get_serial_sequence('jobs', 'id'), %s)", id - 1)
        assert rows.insert("slack", "slack.PostMessage", {"text": text}, status=status) == id

    def finished(id: int) -> None:
        job(id, status="err: HTTP 500")
        rows.execute("UPDATE jobs SET finished_at = now() WHERE id = %s", id)

    def running() -> None:
        job(8123, "slow")
        eventually(lambda: rows.status(8123) == "started")

    def waiting() -> None:
        running()
        job(8124)

    needs: dict[str, Callable[[], object]] = {
        "resume": lambda: run_paceline("pause", "slack"),
        "end": running,
        "cancel": waiting,
        "retry": lambda: finished(8120),
        "release": lambda: job(8123, status="started"),
    }
    needs.get(command.split()[1], lambda: None)()


def test_the_manual_has_its_commands_and_statements() -> None:
    assert {command.split()[1] for command in COMMANDS} >= {
        *("pause", "resume", "restart", "end", "cancel", "retry", "release", "enqueue"),
        *("schedule", "health", "status", "migrate", "check"),
    }
    assert len(STATEMENTS) >= 6


@pytest.mark.slow
def test_every_command_of_the_manual_does_what_it_says(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows
) -> None:
    """One service for all of them: what a command leaves is cleared away before the next."""
    sup = run_supervisor(registry=REGISTRY)
    for command in COMMANDS:
        prepare(command, run_paceline, rows)
        checks = command == "paceline check"  # it reads the tree, which is of the real queues
        sure = ["--yes"] if command == "paceline release slack" else []  # it would ask, on a terminal
        done = run_paceline(*shlex.split(command)[1:], *sure, registry="queues" if checks else REGISTRY)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        for (id,) in rows.execute("SELECT id FROM jobs WHERE status = 'started'"):
            run_paceline("end", str(id))
        run_paceline("resume", "slack")
        rows.execute("TRUNCATE jobs")
        eventually(lambda: sup.child("slack").title == "paceline: slack idle")


@pytest.mark.slow
def test_every_statement_and_shell_line_of_the_manual_works(run_supervisor: RunSupervisor, rows: Rows) -> None:
    run_supervisor(registry=REGISTRY)
    [(pid,)] = rows.execute("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'paceline:slack/%%' LIMIT 1")
    for statement in STATEMENTS:
        rows.execute(statement.replace("%", "%%").replace("PID", str(pid)))
    shell = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines() if line.startswith("ps ")]
    for line in shell:
        assert (
            "paceline: slack" in subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True).stdout
        )


def test_the_variables_of_the_manual_are_those_that_the_command_knows(run_paceline: Paceline) -> None:
    known = set(re.findall(r"^  ([A-Z_]+) ", run_paceline("--help").stdout, re.MULTILINE))
    in_manual = set(re.findall(r"^\| `([A-Z_]+)` \|", MANUAL, re.MULTILINE))
    assert in_manual - {"JOBS_RETENTION_DAYS"} == known
    assert "JOBS_RETENTION_DAYS" in (ROOT / "queues" / "jobs" / "__init__.py").read_text()
