"""`paceline status`: what every queue does, on all hosts: their parents answer, and the database tells of rows.

With the database gone it shows what this host's scoreboards know.
"""

import json
import time
from argparse import Namespace
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from supervisor import commands, control, lease, view
from supervisor import health as probes
from supervisor.config import database_name
from supervisor.control import Answers
from supervisor.errors import PacelineError
from supervisor.scoreboard import snapshots
from supervisor.sql import statement
from supervisor.status import outcome

_WATCH = 2.0  # seconds
_WIDTH = 60  # characters of a cell; what needs attention is above the table, whole
_PATIENCE = 3  # seconds for a server that does not answer; then this host is shown
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


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
    others: dict[str, str] = field(default_factory=dict)  # host -> state, of those that do not hold the lease

    @property
    def described(self) -> str:
        """`idle (host-b: standby)`."""
        words = ", ".join(f"{host}: {state.partition(' (lease')[0]}" for host, state in self.others.items())
        return f"{self.state} ({words})" if words and self.host else self.state


@dataclass(frozen=True)
class VacuumHolder:
    """A session, prepared transaction or slot for which vacuum keeps dead rows; every index grows meanwhile."""

    who: str
    seconds: float | None
    transactions: int


@dataclass
class Overview:
    """What `status` prints, and as JSON."""

    database: str
    trouble: str | None = None  # why the database is out of reach
    parents: list[view.ParentView] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)  # hosts whose parent has a session, and does not answer
    lines: dict[str, Line] = field(default_factory=dict)
    vacuum_holder: VacuumHolder | None = None


def status(arguments: Namespace) -> int:
    while True:
        seen = look(arguments)
        text = as_json(seen) if arguments.json else as_text(seen)
        if not arguments.watch:
            print(text)
            return 0
        print(f"{_CLEAR}{text}", flush=True)
        time.sleep(_WATCH)


def health(arguments: Namespace) -> int:
    """What the probes answer, from this host's scoreboards: of the database given, or else of all."""
    database = database_name(arguments.database_url) if arguments.database_url else ""
    boards = [board for board in snapshots() if database in ("", board.header.database.decode())]
    if not boards:
        raise PacelineError("no service runs here")
    for board in boards:
        stuck = probes.live(board.header)
        for fault in [stuck] * bool(stuck) if arguments.live else probes.faults(board.header, board.slots):
            raise PacelineError(fault)
    print("ok")
    return 0


def look(arguments: Namespace) -> Overview:
    """Ask the database and every parent; with the database gone, this host's scoreboards alone."""
    url = commands.database_url(arguments, make=False)
    arguments.database_url = make_conninfo(url, connect_timeout=conninfo_to_dict(url).get("connect_timeout", _PATIENCE))
    seen = Overview(database_name(url))
    boards = [board for board in snapshots() if board.header.database.decode() == seen.database]
    answers = Answers()
    try:
        with commands.connect(arguments) as connection:
            answers = control.ask(connection, "status")
            served = {view.queue for part in answers.parts for view in part.queues}
            served |= {slot.queue.decode() for board in boards for slot in board.slots}
            seen.lines = from_database(connection, served)
            seen.vacuum_holder = vacuum_holder(connection)
    except psycopg.errors.UndefinedTable:
        raise
    except psycopg.Error as error:
        seen.trouble = f"unreachable: {' '.join(str(error).split())}"
    for part in answers.parts:
        add_parent(seen, part.parent, part.queues)
    answered = {part.token for part in answers.parts}
    for board in boards:
        parent = view.of_header(board.header)
        if parent.token not in answered:
            add_parent(seen, parent, [view.of_slot(slot) for slot in board.slots])
    known = {parent.token for parent in seen.parents}
    seen.silent = [host for token, host in answers.silent.items() if token not in known]
    return seen


def add_parent(seen: Overview, parent: view.ParentView | None, queues: list[view.QueueView]) -> None:
    if parent is None:
        return
    if parent not in seen.parents:
        seen.parents.append(parent)
    for queue in queues:
        add_view(seen.lines, queue, parent.host)


def as_json(seen: Overview) -> str:
    answer = {
        "database": {"name": seen.database, "trouble": seen.trouble},
        "parents": [asdict(parent) for parent in seen.parents],
        "silent": seen.silent,
        "queues": [asdict(line) for line in seen.lines.values()],
        "vacuum_holder": asdict(seen.vacuum_holder) if seen.vacuum_holder else None,
    }
    return json.dumps(answer, indent=2)


def as_text(seen: Overview) -> str:
    said = [f"database {seen.database}" + (f" {seen.trouble}" if seen.trouble else "")]
    for parent in seen.parents:
        heard = "listening" if parent.listening else f"not listening since {parent.deaf_since}"
        said.append(f"parent {parent.host} pid {parent.pid}: {parent.state}, {heard}")
    said += [f"! {attention}" for attention in _attention(seen)]
    said = [commands.printable(line) for line in said]
    cells = [_cells(seen.lines[queue]) for queue in sorted(seen.lines)]
    return "\n".join([*said, commands.table([_HEADINGS, *cells]) if cells else "no queues"])


def from_database(connection: psycopg.Connection[Any], served: AbstractSet[str]) -> dict[str, Line]:
    """A line for each queue that is served, or that some session or row names. Raises psycopg.Error."""
    lines = {}
    for row in connection.execute(statement("overview"), {"queues": sorted(served)}):
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
    """Add what a host's processes know of their queue. The line is the lease holder's; the others are beside it."""
    line = lines.setdefault(seen.queue, Line(seen.queue))
    if line.host and (seen.standby or line.host != host):
        line.others[host] = seen.state
        line.attention = line.attention or seen.attention
        return
    line.state, line.pid, line.until = seen.state, seen.pid, seen.until
    line.attention, line.host = seen.attention, None if seen.standby else host
    if seen.standby:
        line.others[host] = seen.state
    if seen.job_id:
        line.job, line.job_id, line.running_for = seen.job, seen.job_id, seen.running_for


def _attention(seen: Overview) -> Iterator[str]:
    """What a person should look at, a line each."""
    for host in seen.silent:
        yield f"parent {host}: has a session, and does not answer"
    for queue in sorted(seen.lines):
        line = seen.lines[queue]
        if line.attention:
            yield f"{queue}: {line.described}" + (f", {line.pending} pending" if line.pending else "")
    if holder := seen.vacuum_holder:
        for_how_long = "" if holder.seconds is None else f" for {_ago(holder.seconds)}"
        yield f"vacuum is held back{for_how_long} ({holder.transactions} transactions) by {holder.who}"


_HEADINGS = ("QUEUE", "STATE", "HOST", "PID", "JOB", "FOR", "PENDING", "OLDEST", "LAST", "AGO")


def _cells(line: Line) -> tuple[str, ...]:
    return (
        line.queue,
        _short(line.described),
        line.host or "-",
        str(line.pid or "-"),
        f"{line.job} {line.job_id}" if line.job_id else "-",
        _ago(line.running_for),
        "-" if line.pending is None else str(line.pending),
        _ago(line.oldest_pending),
        _short(line.last or "-"),
        _ago(line.last_ago),
    )


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def _ago(seconds: float | None) -> str:
    """`1.3s`, `4m`, `2h`, `3d`."""
    if seconds is None:
        return "-"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0.0, seconds):.1f}s"
