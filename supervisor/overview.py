"""`paceline status`: what every queue does, from this host's scoreboards and the database.

With the database gone it shows what the scoreboards know. The state of a queue that another host
works is what the database tells: who holds its lease.
"""

import json
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import psycopg

from supervisor import commands, lease, view
from supervisor.config import database_name
from supervisor.scoreboard import Snapshot, snapshots
from supervisor.sql import statement
from supervisor.status import outcome


@dataclass
class Line:
    """One queue. Times in seconds; None = not known, or none."""

    queue: str
    state: str = "not served"
    attention: bool = False  # a person should look
    host: str | None = None
    pid: int | None = None
    job: str | None = None
    job_id: int | None = None
    running_for: float | None = None
    until: str | None = None  # UTC, ISO 8601: the end of a pause, a rest or a backoff
    pending: int | None = None
    oldest_pending: float | None = None
    last: str | None = None
    last_outcome: str | None = None
    last_ago: float | None = None
    standby: dict[str, str] = field(default_factory=dict)  # host -> state, of those that stand by


@dataclass(frozen=True)
class VacuumHolder:
    """A session, prepared transaction or slot for which vacuum keeps dead rows; every index grows meanwhile."""

    who: str
    seconds: float | None
    transactions: int


def status(arguments: Namespace) -> int:
    boards, lines, trouble, holder = [], dict[str, Line](), "", None
    try:
        url = commands.database_url(arguments, make=False)
        database = database_name(url)
        boards = [board for board in snapshots() if board.header.database.decode() == database]
        arguments.database_url = url
        with commands.connect(arguments) as connection:
            lines = from_database(connection, boards)
            holder = vacuum_holder(connection)
    except psycopg.errors.UndefinedTable:
        raise
    except psycopg.Error as error:
        trouble = f"unreachable: {' '.join(str(error).split())}"
    for board in boards:
        for slot in board.slots:
            add_view(lines, view.of_slot(slot), board.header.host.decode())
    parents = [view.of_header(board.header) for board in boards]
    if arguments.json:
        answer = {
            "database": {"name": database, "trouble": trouble or None},
            "parents": [asdict(parent) for parent in parents],
            "queues": [asdict(line) for line in lines.values()],
            "vacuum_holder": asdict(holder) if holder else None,
        }
        print(json.dumps(answer, indent=2))
        return 0
    print(commands.printable(f"database {database}" + (f" {trouble}" if trouble else "")))
    for parent in parents:
        heard = "listening" if parent.listening else f"not listening since {parent.deaf_since}"
        print(commands.printable(f"parent {parent.host} pid {parent.pid}: {parent.state}, {heard}"))
    for attention in _attention(lines, holder):
        print(commands.printable(f"! {attention}"))
    print(commands.table([_HEADINGS, *(_cells(lines[queue]) for queue in sorted(lines))]) if lines else "no queues")
    return 0


def from_database(connection: psycopg.Connection[Any], boards: list[Snapshot]) -> dict[str, Line]:
    """A line for each queue that some session or row names, or that is on a scoreboard. Raises psycopg.Error."""
    queues = sorted({slot.queue.decode() for board in boards for slot in board.slots})
    lines = {}
    for row in connection.execute(statement("overview"), {"queues": queues}):
        queue, pending, oldest, id, name, seconds, last, ago, holder = row
        lines[queue] = Line(
            queue,
            state="works on another host" if holder else "not served",
            attention=bool((pending or id) and not holder),
            host=lease.host_of(holder) if holder else None,
            job=name,
            job_id=id,
            running_for=seconds,
            pending=pending,
            oldest_pending=oldest,
            last=last,
            last_outcome=outcome(last) if last else None,
            last_ago=ago,
        )
    return lines


def vacuum_holder(connection: psycopg.Connection[Any]) -> VacuumHolder | None:
    """Who holds back vacuum the furthest, None where nobody does for long. Raises psycopg.Error."""
    row = connection.execute(statement("vacuum_holder")).fetchone()
    return VacuumHolder(*row) if row else None


def add_view(lines: dict[str, Line], seen: view.QueueView, host: str) -> None:
    """Add what a host's processes know of their queue; a standby's line stays the holder's."""
    line = lines.setdefault(seen.queue, Line(seen.queue))
    if seen.standby:
        line.standby[host] = seen.state
        if not line.host:
            line.state = seen.state
        return
    line.state, line.attention, line.host, line.pid, line.until = seen.state, seen.attention, host, seen.pid, seen.until
    if seen.job_id:
        line.job, line.job_id, line.running_for = seen.job, seen.job_id, seen.running_for


def _attention(lines: dict[str, Line], holder: VacuumHolder | None) -> Iterator[str]:
    """What a person should look at, a line each."""
    for queue in sorted(lines):
        line = lines[queue]
        if line.attention:
            yield f"{queue}: {line.state}" + (f", {line.pending} pending" if line.pending else "")
    if holder:
        for_how_long = "" if holder.seconds is None else f" for {_ago(holder.seconds)}"
        yield f"vacuum is held back{for_how_long} ({holder.transactions} transactions) by {holder.who}"


_HEADINGS = ("QUEUE", "STATE", "HOST", "PID", "JOB", "FOR", "PENDING", "OLDEST", "LAST", "AGO")


def _cells(line: Line) -> tuple[str, ...]:
    standby = ", ".join(f"standby on {host}" for host in line.standby)
    return (
        line.queue,
        f"{line.state} ({standby})" if standby else line.state,
        line.host or "-",
        str(line.pid or "-"),
        f"{line.job} {line.job_id}" if line.job_id else "-",
        _ago(line.running_for),
        "-" if line.pending is None else str(line.pending),
        _ago(line.oldest_pending),
        (line.last or "-")[:40],
        _ago(line.last_ago),
    )


def _ago(seconds: float | None) -> str:
    """`1.3s`, `4m`, `2h`, `3d`."""
    if seconds is None:
        return "-"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0.0, seconds):.1f}s"
