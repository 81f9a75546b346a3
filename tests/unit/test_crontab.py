"""A schedule entry's crontab, found by asking its predicate for a year's minutes; none where none would be true."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from supervisor import Scheduled
from supervisor.child.traces import slug
from supervisor.schedule import crontab

Predicate = Callable[[datetime], bool]
BERLIN = ZoneInfo("Europe/Berlin")
SUMMER, WINTER = datetime(2026, 7, 3, 5, 7, tzinfo=UTC), datetime(2026, 12, 30, 23, 59, tzinfo=UTC)


def at(hour: int, minute: int) -> Predicate:
    return lambda when: (when.hour, when.minute) == (hour, minute)


def both(first: Predicate, second: Predicate) -> Predicate:
    return lambda when: first(when) and second(when)


def found(*predicates: Predicate, now: datetime = SUMMER) -> str | None:
    return crontab([Scheduled("desk", "desk.Tidy", predicate) for predicate in predicates], now)


@pytest.mark.parametrize("now", [SUMMER, WINTER])
@pytest.mark.parametrize(
    ("predicate", "said"),
    [
        (lambda when: when.minute % 15 == 0, "0,15,30,45 * * * *"),
        (at(3, 10), "10 3 * * *"),
        (both(at(9, 0), lambda when: when.weekday() == 6), "0 9 * * 0"),
        (both(lambda when: when.minute == 5, lambda when: when.weekday() < 5), "5 * * * 1,2,3,4,5"),
        (both(at(0, 0), lambda when: when.day in (1, 15)), "0 0 1,15 * *"),
    ],
)
def test_a_predicate_that_is_a_crontab_is_found_out(predicate: Predicate, said: str, now: datetime) -> None:
    assert found(predicate, now=now) == said


def test_two_entries_of_one_job_are_one_crontab() -> None:
    assert found(at(3, 10), at(15, 10)) == "10 3,15 * * *"


@pytest.mark.parametrize("now", [SUMMER, WINTER])
@pytest.mark.parametrize(
    "predicate",
    [
        at(24, 0),  # never
        lambda when: when.minute == when.hour,
        lambda when: at(9, 0)(when.astimezone(BERLIN)),  # an hour later in winter
        both(at(0, 0), lambda when: (when + timedelta(days=1)).day == 1),  # the last of the month
        both(at(0, 0), lambda when: when.weekday() == 0 and when.isocalendar().week % 2 == 0),
        both(at(0, 0), lambda when: when.day == 1 and when.month % 3 == 1),
        both(at(0, 0), lambda when: when.month in (6, 7, 8, 9)),
        lambda when: 1 / (when.minute - 30) > 2,  # raises
    ],
)
def test_where_a_crontab_would_not_be_true_none_is_given(predicate: Predicate, now: datetime) -> None:
    assert found(predicate, now=now) is None


def test_a_monitor_is_named_after_its_queue_and_job() -> None:
    assert slug("jobs", "jobs.CleanUpQueues") == "jobs-clean-up-queues"
    assert slug("jobs", "CleanUp") == "jobs-clean-up"
    long = slug("jobs", "jobs." + "Long" * 20), slug("jobs", "jobs." + "Long" * 21)
    assert {len(name) for name in long} == {50}
    assert len(set(long)) == 2
