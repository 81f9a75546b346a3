"""What a scoreboard tells, in an operator's words: plain data, as `status` prints it and as JSON carries it."""

import math
from dataclasses import dataclass

from supervisor.scoreboard import Doing, Header, Phase, Slot
from supervisor.titles import clock, utc
from supervisor.worker import boottime

_LATE = 5.0  # seconds past its promise after which a loop is shown as not turning


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue as one host's processes know it. Times in seconds."""

    queue: str
    state: str  # one phrase
    works: bool  # it is worked, or waits as it should: it stands by, is paused, rests
    attention: bool  # a person should look
    pid: int | None  # of its process; None while it has none
    standby: bool  # another host works the queue
    job: str | None
    job_id: int | None
    running_for: float | None
    until: str | None  # UTC, ISO 8601: when a pause, a rest or a backoff ends


@dataclass(frozen=True, slots=True)
class ParentView:
    token: str
    host: str
    pid: int
    state: str
    listening: bool
    deaf_since: str | None  # UTC, ISO 8601: when LISTEN was lost
    attention: bool


def of_slot(slot: Slot) -> QueueView:
    now = boottime()
    child, parent = slot.child, slot.parent
    state, works = _state(slot, now)
    running = bool(child.running)
    until = parent.starts_at
    if child.doing in (Doing.PAUSED, Doing.RESTING, Doing.SETTLING):
        until = child.until if child.until > now else child.waits_until
    return QueueView(
        queue=slot.queue.decode(),
        state=state,
        works=works,
        attention=not works or child.doing in (Doing.PAUSED, Doing.SETTLING),
        pid=parent.pid or None,
        standby=bool(parent.pid) and child.doing == Doing.STANDBY,
        job=_text(child.name) if running else None,
        job_id=child.running or None,
        running_for=now - child.began if running else None,
        until=_iso(until) if now < until < math.inf else None,
    )


def of_header(header: Header) -> ParentView:
    now = boottime()
    late = now - header.turned
    stuck = late > _LATE
    return ParentView(
        token=_text(header.token),
        host=_text(header.host),
        pid=header.pid,
        state=f"not turning for {late:.0f}s" if stuck else "draining" if header.draining else "running",
        listening=bool(header.listening_since),
        deaf_since=_iso(header.deaf_since) if header.deaf_since else None,
        attention=stuck or not header.listening_since,
    )


def _state(slot: Slot, now: float) -> tuple[str, bool]:
    """One phrase, as an operator would say it, and whether the queue is worked, or waits as it should."""
    child, parent = slot.child, slot.parent
    doing = Doing(child.doing)
    if parent.phase == Phase.BACKOFF and parent.deaths:
        left = max(0.0, parent.starts_at - now)
        return f"backing off {left:.0f}s ({_text(parent.cause)}, {parent.deaths} deaths)", False
    if parent.phase == Phase.STOPPED:
        return "stopped", True
    late = now > child.due + _LATE
    # To connect may take long, by the network or a name server, and is waiting for the database.
    if late and not child.running and doing not in (Doing.STARTING, Doing.CONNECTING):
        return f"not turning for {now - child.turned:.0f}s", False
    words = "waiting for the database" if doing is Doing.CONNECTING else doing.name.lower()
    if child.trouble:
        return f"{words}: {_text(child.trouble)}", False
    if doing is Doing.STANDBY:
        return f"standby (lease: {_text(child.holder)})", True
    if doing in (Doing.PAUSED, Doing.RESTING) and child.until > now:
        return f"{words} until {clock(child.until)} UTC ({_text(child.reason)})", True
    if doing in (Doing.PAUSED, Doing.SETTLING):
        words = "waits" if doing is Doing.SETTLING else words
        until = f" until {clock(child.waits_until)} UTC" if child.waits_until < math.inf else ""
        return f"{words}{until} ({_text(child.waits_for)})", True
    return words, not (late and doing is Doing.CONNECTING)


def _iso(moment: float) -> str:
    return utc(moment).isoformat(timespec="seconds")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
