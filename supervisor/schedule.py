"""What the clock enqueues, and when: entries of (queue, name, predicate), as data."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class Scheduled:
    """One entry: in each UTC minute for which `predicate` holds, one job is enqueued, deduped."""

    queue: str
    name: str
    predicate: Callable[[datetime], bool]
    args: Mapping[str, Any] = field(default_factory=dict)


def callsite(minute: datetime) -> str:
    """The callsite of the clock's rows, `clock 2026-10-21T12:30Z`: unique per queue, name and minute."""
    return f"clock {minute:%Y-%m-%dT%H:%MZ}"


def ticks(entry: Scheduled, start: datetime, minutes: int) -> Iterator[datetime]:
    """The minutes for which `entry` holds, among the `minutes` that follow `start` (exclusive)."""
    minute = start.replace(second=0, microsecond=0)
    for _ in range(minutes):
        minute += timedelta(minutes=1)
        if entry.predicate(minute):
            yield minute
