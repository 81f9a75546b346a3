"""What the clock enqueues, and when: entries of (queue, name, predicate), as data."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import product
from typing import Any

_MINUTE = timedelta(minutes=1)


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
        minute += _MINUTE
        if entry.predicate(minute):
            yield minute


def is_of_clock(text: str | None) -> bool:
    """Whether a callsite is the clock's."""
    return text is not None and text.startswith("clock ")


def crontab(entries: Sequence[Scheduled], now: datetime) -> str | None:
    """When any of these holds as a crontab in UTC; None where none says it, none ever holds, or one raises.

    Looked at are the 62 days from today, which have each day of a month twice, and every fifth for the rest of a
    year, which shows a season, and a local time's summer.
    """
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    days = [today + timedelta(days=number) for number in (*range(62), *range(62, 366, 5))]
    try:
        found = {
            day: {(time.hour, time.minute) for entry in entries for time in ticks(entry, day - _MINUTE, 24 * 60)}
            for day in days
        }
    except Exception:  # noqa: BLE001 - the edge: a predicate is the user's code; the clock reports it
        return None
    hours, minutes = ({time[part] for times in found.values() for time in times} for part in (0, 1))
    for form, of in _DAYS.items():
        chosen = {of(day) for day in days if found[day]}
        if chosen and all(found[day] == {*product(hours, minutes)} for day in days if of(day) in chosen):
            return f"{_field(minutes, 60)} {_field(hours, 24)} {form.format(_field(chosen))}"
    return None


def _field(values: AbstractSet[int], whole: int = 0) -> str:
    return "*" if len(values) == whole else ",".join(map(str, sorted(values)))


_DAYS: dict[str, Callable[[datetime], int]] = {  # days of a month, month and days of a week, by what they are chosen
    "* * *": lambda day: 0,
    "* * {}": lambda day: day.isoweekday() % 7,
    "{} * *": lambda day: day.day,
}
