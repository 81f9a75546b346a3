"""The lease: one poller per queue in the whole database, and what its new holder does with rows left `started`.

The lease is a session-level advisory lock, held by the one connection that also claims: to lose the
connection is to lose the lease, so a claim can only happen under it, with no further protocol.
Its two keys are the table's oid and a hash of the queue's name, so `pg_locks` shows it to an operator.

verdict() is the whole take-over rule; the child asks it, and a model can explore it.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from psycopg.rows import TupleRow

ROW_MARGIN = 5.0  # seconds after a row's kernel deadline until another host believes in it
MET_BEFORE = 60.0  # seconds: how long before a row's start a meeting still counts
_SESSION = re.compile(r"paceline:(?P<role>[^/]+)/(?P<detail>[^@]*)(?:@(?P<host>.*))?", re.DOTALL)


class Verdict(Enum):
    INTERRUPT = "interrupt"
    WAIT = "wait"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Left:
    """A row that the new holder finds `started`. Seconds by the server's clock."""

    id: int
    started_at: float | None


@dataclass(frozen=True, slots=True)
class Witness:
    """What this host knows of other hosts. Seconds by the server's clock."""

    booted_at: float  # this parent's first look
    met_at: float  # when it last saw another parent of this database; 0 = never
    listening_since: float = math.inf  # it has listened without a break since then; inf = it does not listen


def alone(started_at: float, witness: Witness) -> bool:
    """Whether no other parent was met since the later of the boot and a minute before the row's start."""
    return witness.met_at < max(witness.booted_at, started_at - MET_BEFORE)


def row_deadline(started_at: float, timeout: float, grace: float) -> float:
    """When the kernel of whichever host runs the row has ended it, by the server's clock."""
    return started_at + timeout + grace + ROW_MARGIN


def verdict(
    left: Left, *, intent: int, witness: Witness, looked: float, settle: float, timeout: float, grace: float, now: float
) -> Verdict:
    """What the new holder of the lease does with a row left `started`.

    Alone, and having looked for `settle` seconds (a living host is back within that after a database
    restart): the row belongs to a dead process. It is interrupted, but for the `intent`: the row that
    this queue's last child meant to claim, whose handler never began; that one is run, if this parent
    has listened since before the row's start. While it did not, a host that it never met may have claimed
    the row, begun it and died.
    Not alone: its process may have lost only its session and be running still. The row is left until
    that host's kernel has enforced its deadline; then it is interrupted.
    """
    if left.started_at is None:
        return Verdict.INTERRUPT  # no engine of today starts a row so
    if alone(left.started_at, witness):
        if looked < settle:
            return Verdict.WAIT
        mine = left.id == intent and witness.listening_since <= left.started_at
        return Verdict.RUN if mine else Verdict.INTERRUPT
    passed = now >= row_deadline(left.started_at, timeout, grace)
    return Verdict.INTERRUPT if passed else Verdict.WAIT


@dataclass(frozen=True, slots=True)
class Sessions:
    """The engine's sessions on this database, read from their names."""

    now: float  # the server's clock
    parents: frozenset[str]  # tokens
    timeouts: dict[str, float]  # by queue, the largest shown

    @classmethod
    def read(cls, now: float, names: Iterable[str]) -> "Sessions":
        parents, timeouts = set(), dict[str, float]()
        for name in names:
            if not (match := _SESSION.fullmatch(name)):
                continue
            role, detail = match["role"], match["detail"]
            if role == "parent":
                parents.add(detail)
            elif detail.isdigit():
                timeouts[role] = max(timeouts.get(role, 0.0), float(detail))
        return cls(now, frozenset(parents), timeouts)


def shown_timeout(seconds: float) -> str:
    """A job_timeout as session names show it: whole seconds, rounded up."""
    return str(math.ceil(seconds))


def host_of(session: str) -> str:
    """The host in a session's name, `?` where it has been cut off or is not ours."""
    match = _SESSION.fullmatch(session)
    return (match["host"] if match else "") or "?"


# `ask(name, **params)`: the rows of sql/NAME.sql, on a child's session or by db.asking(). Raises psycopg.Error.
Ask = Callable[..., Sequence[TupleRow]]


def sessions(ask: Ask) -> Sessions:
    [(now, names)] = ask("sessions")
    return Sessions.read(now, names)


def parents(ask: Ask) -> dict[str, str]:
    """The host of each parent that has a session here, by its token."""
    [(_, names)] = ask("sessions")
    found = filter(None, map(_SESSION.fullmatch, names))
    return {match["detail"]: match["host"] or "?" for match in found if match["role"] == "parent"}


def try_lease(ask: Ask, queue: str) -> bool:
    [(taken,)] = ask("try_lease", queue=queue)
    return bool(taken)


def release_lease(ask: Ask, queue: str) -> None:
    """Let go, and tell every parent, so that a standby takes over within milliseconds."""
    ask("release_lease", queue=queue)


def lease_holder(ask: Ask, queue: str) -> tuple[int, str] | None:
    """(backend pid, session name) of the lease's holder, None where it is free."""
    rows = ask("lease_holder", queue=queue)
    return (rows[0][0], rows[0][1]) if rows else None


def end_session(ask: Ask, backend: int, name: str) -> None:
    """Terminate the backend `backend` if it still is the session `name`: a process's own, lost one."""
    ask("end_session", pid=backend, name=name)


def left_started(ask: Ask, queue: str) -> list[Left]:
    return [Left(*row) for row in ask("left_started", queue=queue)]


def interrupt(ask: Ask, id: int, status: str) -> bool:
    """End another process's row with `status`, if it is still `started`; whether it was."""
    return bool(ask("interrupt", id=id, status=status))
