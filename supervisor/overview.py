"""`paceline status`: what every queue does, from this host's scoreboards and the database.

With the database gone it shows what the scoreboards know. The state of a queue that another host
works is what the database tells: who holds its lease.
"""

import json
from argparse import Namespace
from dataclasses import asdict, dataclass
from typing import Any

import psycopg

from supervisor import commands, lease
from supervisor.config import database_name
from supervisor.scoreboard import Doing, Phase, Slot, Snapshot, snapshots
from supervisor.sql import statement
from supervisor.status import outcome
from supervisor.worker import boottime

_LATE = 5.0  # seconds past its promise after which a loop is shown as not turning


@dataclass
class Line:
    """One queue. Times in seconds; None = not known, or none."""

    queue: str
    state: str = "not served"
    host: str | None = None
    pid: int | None = None
    job: str | None = None
    job_id: int | None = None
    running_for: float | None = None
    pending: int | None = None
    oldest_pending: float | None = None
    last: str | None = None
    last_outcome: str | None = None
    last_ago: float | None = None


def status(arguments: Namespace) -> int:
    boards, lines, trouble = [], dict[str, Line](), ""
    try:
        url = commands.database_url(arguments, make=False)
        database = database_name(url)
        boards = [board for board in snapshots() if board.header.database.decode() == database]
        arguments.database_url = url
        lines = from_database(arguments, boards)
    except psycopg.errors.UndefinedTable:
        raise
    except psycopg.Error as error:
        trouble = f"unreachable: {' '.join(str(error).split())}"
    now = boottime()
    for board in boards:
        for slot in board.slots:
            add_slot(lines, slot, board, now)
    parents = [parent(board, now) for board in boards]
    if arguments.json:
        answer = {
            "database": {"name": database, "trouble": trouble or None},
            "parents": parents,
            "queues": [asdict(line) for line in lines.values()],
        }
        print(json.dumps(answer, indent=2))
        return 0
    print(f"database {database}" + (f" {trouble}" if trouble else ""))
    for shown in parents:
        print(f"parent {shown['host']} pid {shown['pid']}: {shown['state']}, {shown['listening']}")
    print(commands.table([_HEADINGS, *(_cells(lines[queue]) for queue in sorted(lines))]) if lines else "no queues")
    return 0


def from_database(arguments: Namespace, boards: list[Snapshot]) -> dict[str, Line]:
    """A line for each queue that some session or row names, or that is on a scoreboard. Raises psycopg.Error."""
    queues = sorted({slot.queue.decode() for board in boards for slot in board.slots})
    lines = {}
    with commands.connect(arguments) as connection:
        for row in connection.execute(statement("overview"), {"queues": queues}):
            queue, pending, oldest, id, name, seconds, last, ago, holder = row
            lines[queue] = Line(
                queue,
                state="works on another host" if holder else "not served",
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


def add_slot(lines: dict[str, Line], slot: Slot, board: Snapshot, now: float) -> None:
    """Add what this host's process knows of its queue; a standby's line stays the holder's."""
    line = lines.setdefault(slot.queue.decode(), Line(slot.queue.decode()))
    state = state_of(slot, now)
    if slot.parent.pid and slot.child.doing == Doing.STANDBY and line.host:
        line.state = f"{state} on {board.header.host.decode()}"
        return
    line.state, line.host = state, board.header.host.decode()
    line.pid = slot.parent.pid or None
    if slot.child.running:
        line.job, line.job_id = slot.child.name.decode(), slot.child.running
        line.running_for = now - slot.child.began


def state_of(slot: Slot, now: float) -> str:
    """One phrase, as an operator would say it."""
    child, parent = slot.child, slot.parent
    doing = Doing(child.doing)
    if parent.phase == Phase.BACKOFF:
        cause = parent.cause.decode() or "starting"
        return f"backing off {max(0.0, parent.starts_at - now):.0f}s ({cause}, {parent.deaths} deaths)"
    if parent.phase == Phase.STOPPED:
        return "stopped"
    if not child.running and doing is not Doing.STARTING and now > child.due + _LATE:
        return f"not turning for {now - child.turned:.0f}s"
    if doing is Doing.CONNECTING:
        return "waiting for the database"
    if doing is Doing.STANDBY:
        return f"standby (lease: {child.holder.decode()})"
    if doing in (Doing.PAUSED, Doing.RESTING):
        return f"{doing.name.lower()} for {max(0.0, child.until - now):.0f}s ({child.reason.decode()})"
    return doing.name.lower()


def parent(board: Snapshot, now: float) -> dict[str, Any]:
    header = board.header
    late = now - header.turned
    state = f"not turning for {late:.0f}s" if late > _LATE else "draining" if header.draining else "running"
    return {
        "host": header.host.decode(),
        "pid": header.pid,
        "state": state,
        "listening": "listening" if header.listening_since else f"not listening for {now - header.deaf_since:.0f}s",
    }


_HEADINGS = ("QUEUE", "STATE", "HOST", "PID", "JOB", "FOR", "PENDING", "OLDEST", "LAST", "AGO")


def _cells(line: Line) -> tuple[str, ...]:
    return (
        line.queue,
        line.state,
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
