"""Whether this host is well: what probes ask, from the scoreboard alone, so that they work with the database gone."""

from collections.abc import Iterable

from supervisor import view
from supervisor.scoreboard import Header, Slot
from supervisor.worker import boottime

STUCK = 15.0  # seconds without a turn of the parent's loop, which turns every second


def live(header: Header) -> str:
    """Why the parent should be restarted; empty if it is alive. A dead database or a bad queue is no reason."""
    late = boottime() - header.turned
    return f"the parent's loop has not turned for {late:.0f}s" if late > STUCK else ""


def faults(header: Header, slots: Iterable[Slot]) -> list[str]:
    """What keeps this host's queues from being worked, a line each. To be paused or to stand by is none."""
    found = [stuck] if (stuck := live(header)) else []
    if not header.ready:
        found.append("the boot is not over")
    elif not header.listening_since:
        found.append("the database is out of reach, or LISTEN is lost")
    views = [view.of_slot(slot) for slot in slots]
    return found + [f"{seen.queue}: {seen.state}" for seen in views if not seen.works]
