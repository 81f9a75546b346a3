"""The rules that are pure functions: restarts, statuses, rests, leases, session names, ticks, what a worker may be."""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from supervisor import RateLimited, Scheduled, TokenRefused, UnexpectedStatus, Worker, fail, outcome, skip
from supervisor import status as statuses
from supervisor.child.execution import PAUSE, Rest, rest_after
from supervisor.db import session_name
from supervisor.errors import JobTimeout
from supervisor.lease import (
    Left,
    Sessions,
    Verdict,
    Witness,
    alone,
    host_of,
    row_deadline,
    shown_timeout,
    verdict,
)
from supervisor.parent.restart import LONGEST, restart_at, restart_delay
from supervisor.schedule import callsite, ticks
from supervisor.scoreboard import cut

# Restarts


def test_the_first_replacement_is_immediate() -> None:
    assert restart_at([]) == 0.0
    assert restart_at([1000.25]) == 1000.25
    assert restart_delay([1000.25], now=1000.25) == 0.0


def test_deaths_without_a_finished_job_back_off_exponentially_to_a_minute() -> None:
    for deaths, longest in [(2, 1), (3, 2), (4, 4), (5, 8), (6, 16), (7, 32), (8, 60), (9, 60), (100, 60), (5000, 60)]:
        delays = [restart_delay([0.0] * (deaths - 1) + [at], now=at) for at in (7.0, 7.0001, 7.0005, 7.0009)]
        assert all(0.8 * longest <= delay <= longest + 1e-9 for delay in delays), (deaths, delays)
    assert LONGEST == 60


def test_the_delay_shrinks_as_time_passes_and_is_never_negative() -> None:
    deaths = [10.0, 11.0, 12.0]
    due = restart_at(deaths)
    assert restart_delay(deaths, now=12.0) > restart_delay(deaths, now=12.5) > 0
    assert restart_delay(deaths, now=due) == restart_delay(deaths, now=due + 100) == 0.0


def test_queues_that_died_together_do_not_start_together() -> None:
    starts = {round(restart_at([0, 0, 0, 0, 0, 5 + moment * 1e-4]) - moment * 1e-4, 3) for moment in range(10)}
    assert len(starts) > 5


# Statuses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pending", "pending"),
        ("started", "started"),
        ("ok", "ok"),
        ("12 companies", "ok"),
        ("okay: fine", "ok"),
        ("error: no prefix", "ok"),
        (fail("no such person"), "fail"),
        (skip("fresh"), "skip"),
        (statuses.err("broke"), "err"),
        (statuses.interrupted(), "err"),
        (statuses.timed_out(300), "err"),
    ],
)
def test_an_outcome_is_the_prefix_and_whatever_has_none_is_ok(text: str, expected: str) -> None:
    assert outcome(text) == expected


def test_each_prefix_has_its_builder() -> None:
    assert fail("x") == "fail: x"
    assert skip("x") == "skip: x"
    assert statuses.interrupted() == "err: interrupted"
    assert statuses.interrupted("SIGSEGV") == "err: interrupted: SIGSEGV"
    assert statuses.timed_out(300.0) == "err: timeout after 300s"
    assert statuses.timed_out(0.5) == "err: timeout after 0.5s"


def test_a_text_is_made_storable_and_an_ordinary_one_stays_as_it_is() -> None:
    """FAULTS 26."""
    assert statuses.storable("fünf ✓ 🚴\n\ttab") == "fünf ✓ 🚴\n\ttab"
    assert statuses.storable("a\0b") == "a\ufffdb"
    assert statuses.storable("half \ud83d of it") == "half ? of it"
    whole = "x" * statuses.LONGEST
    assert statuses.storable(whole) == whole
    assert statuses.storable(whole + "y") == whole[:-1] + "…"
    assert len(statuses.storable("\0\ud800" * 10_000_000)) == statuses.LONGEST


def test_the_fallback_is_plain_ascii_and_an_err() -> None:
    assert statuses.UNSTORABLE.isascii()
    assert outcome(statuses.UNSTORABLE) == "err"


def test_every_status_fits_its_slot_whole() -> None:
    """The slot holds the true status of a row whose process is killed: two thousand characters of four bytes."""
    longest = statuses.storable("\U0001f6b4" * 5000)
    assert cut(longest, 8192).decode() == longest


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError


class Wordless(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307 - the fault that this is about


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("it broke"), "err: it broke"),
        (RuntimeError(), "err: RuntimeError"),
        (RuntimeError(" \n"), "err: RuntimeError"),
        (KeyError("id"), "err: 'id'"),
        (SystemExit(7), "err: 7"),
        (KeyboardInterrupt(), "err: KeyboardInterrupt"),
        (Unprintable(), "err: Unprintable"),
        (Wordless(), "err: Wordless"),
        (UnexpectedStatus(502, "bad gateway"), "err: HTTP 502: bad gateway"),
    ],
)
def test_an_error_is_told_by_its_message_or_else_its_type(error: BaseException, expected: str) -> None:
    assert statuses.of_error(error) == expected


# Rests


def throttle(status: str, error: BaseException | None, elapsed: float) -> float:
    return 2.0 if status == "ok" else 5.0 + elapsed


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UnexpectedStatus(401), Rest(PAUSE, "HTTP 401", paused=True)),
        (UnexpectedStatus(403, "scope"), Rest(PAUSE, "HTTP 403: scope", paused=True)),
        (TokenRefused("invalid_auth"), Rest(PAUSE, "HTTP 401: invalid_auth", paused=True)),
        (RateLimited(17.5), Rest(17.5, "rate limited")),
        (RateLimited(math.nan), Rest(60.0, "rate limited")),
        (RateLimited(-1), Rest(60.0, "rate limited")),
        (UnexpectedStatus(500), Rest(5.5, "throttle")),
        (JobTimeout(), Rest(5.5, "throttle")),
    ],
)
def test_an_error_rests_or_pauses_its_queue(error: BaseException, expected: Rest) -> None:
    """DESIGN section 5, step 9: 401 and 403 pause for an hour, RateLimited rests that long, else the throttle rules."""
    assert rest_after(throttle, "err: x", error, 0.5) == expected
    assert PAUSE == 3600


def test_a_throttle_is_asked_with_status_error_and_elapsed_and_none_means_no_rest() -> None:
    assert rest_after(throttle, "ok", None, 1.0) == Rest(2.0, "throttle")
    assert rest_after(None, "ok", None, 1.0) == Rest(0.0)


def test_a_throttle_that_raises_is_a_minutes_rest_and_says_why() -> None:
    """No throttle at all would break the rate limit that it is there for."""

    def broken(status: str, error: BaseException | None, elapsed: float) -> float:
        raise ZeroDivisionError("no rate")

    rest = rest_after(broken, "ok", None, 1.0)
    assert rest.seconds == 60.0
    assert "no rate" in rest.reason


# Rows left started

NEVER = Witness(booted_at=1000.0, met_at=0.0, listening_since=1000.0)


def judge(
    left: Left, witness: Witness = NEVER, *, intent: int = 0, looked: float = 5.0, now: float = 2000.0
) -> Verdict:
    return verdict(left, intent=intent, witness=witness, looked=looked, settle=5.0, timeout=300.0, grace=10.0, now=now)


def test_alone_a_row_is_waited_for_through_the_grace_and_then_interrupted_whatever_its_age() -> None:
    for started in (10.0, 1990.0, 1999.9):
        assert judge(Left(1, started), looked=0.0) is Verdict.WAIT
        assert judge(Left(1, started), looked=4.9) is Verdict.WAIT
        assert judge(Left(1, started), looked=5.0) is Verdict.INTERRUPT


def test_alone_the_mere_intent_is_run_and_only_that() -> None:
    assert judge(Left(7, 1990.0), intent=7) is Verdict.RUN
    assert judge(Left(8, 1990.0), intent=7) is Verdict.INTERRUPT
    assert judge(Left(7, 1990.0), intent=7, looked=4.0) is Verdict.WAIT


def test_not_alone_a_row_is_left_until_its_own_deadline_also_the_intent() -> None:
    met = Witness(booted_at=1000.0, met_at=1950.0)
    due = row_deadline(1990.0, timeout=300.0, grace=10.0)
    assert due == 1990 + 300 + 10 + 5
    for intent in (0, 7):
        assert judge(Left(7, 1990.0), met, intent=intent, now=due - 0.1) is Verdict.WAIT
        assert judge(Left(7, 1990.0), met, intent=intent, now=due) is Verdict.INTERRUPT


def test_a_meeting_counts_from_the_boot_or_a_minute_before_the_rows_start_whichever_is_later() -> None:
    started = 5000.0
    assert alone(started, Witness(booted_at=1000.0, met_at=0.0))
    assert alone(started, Witness(booted_at=1000.0, met_at=4939.9))
    assert not alone(started, Witness(booted_at=1000.0, met_at=4940.0))
    assert not alone(started, Witness(booted_at=1000.0, met_at=5001.0))
    assert alone(started, Witness(booted_at=5001.0, met_at=5000.9))
    assert not alone(started, Witness(booted_at=5001.0, met_at=5001.0))  # met at the first look


def test_a_started_row_without_a_start_is_nobodys() -> None:
    for witness in (NEVER, Witness(booted_at=1000.0, met_at=1999.0)):
        assert judge(Left(1, None), witness, looked=0.0) is Verdict.INTERRUPT


# Names of sessions


def test_sessions_are_read_from_their_names() -> None:
    read = Sessions.read(
        5.0,
        [
            "paceline:parent/aa11@host-a",
            "paceline:parent/bb22@host.b/with@signs",
            "paceline:apollo/120@host-a",
            "paceline:apollo/300@host-b",
            "paceline:apollo/60@",
            "paceline:git.hub-1/5@host",
            "paceline:github/900",
            "paceline:command/status@",
            "paceline:boot",
            "paceline handler",
            "psql",
            "",
        ],
    )
    assert read == Sessions(5.0, frozenset({"aa11", "bb22"}), {"apollo": 300.0, "git.hub-1": 5.0, "github": 900.0})


def test_a_sessions_name_keeps_queue_and_timeout_in_63_bytes_and_loses_the_host_first() -> None:
    assert session_name("apollo", "120", "host-a") == "paceline:apollo/120@host-a"
    longest = session_name("q" * 40, shown_timeout(86_400), "host.of.a.long.name")
    assert longest == f"paceline:{'q' * 40}/86400@host.of"
    assert len(longest) == 63
    assert Sessions.read(0.0, [longest]).timeouts == {"q" * 40: 86_400.0}
    wide = session_name("q" * 40, "86400", "höst-ö")
    assert len(wide.encode()) <= 63
    assert wide.startswith(f"paceline:{'q' * 40}/86400@hös")


def test_a_timeout_is_shown_in_whole_seconds_never_too_short() -> None:
    assert [shown_timeout(seconds) for seconds in (0.05, 1, 1.2, 300.0)] == ["1", "1", "2", "300"]


def test_the_host_is_read_from_a_sessions_name_and_a_question_mark_where_it_was_cut() -> None:
    assert host_of("paceline:apollo/120@host-a") == "host-a"
    assert host_of("paceline:apollo/120@") == host_of("paceline:apollo/120") == host_of("psql") == "?"


# Ticks


def test_a_tick_is_a_minute_after_the_start_for_which_the_predicate_holds() -> None:
    entry = Scheduled("caches", "caches.Age", lambda minute: minute.minute % 15 == 0)
    start = datetime(2026, 10, 21, 12, 30, 59, 999, tzinfo=UTC)
    found = list(ticks(entry, start, 60))
    assert [f"{minute:%H:%M:%S.%f}" for minute in found] == [
        f"{at}:00.000000" for at in ("12:45", "13:00", "13:15", "13:30")
    ]
    assert {minute.tzinfo for minute in found} == {UTC}


def test_ticks_of_a_day_are_every_minute_of_it_once() -> None:
    entry = Scheduled("caches", "caches.Age", lambda minute: True)
    found = list(ticks(entry, datetime(2026, 12, 31, 23, 59, tzinfo=UTC), 24 * 60))
    assert found[0] == datetime(2027, 1, 1, 0, 0, tzinfo=UTC)
    assert found[-1] == datetime(2027, 1, 1, 23, 59, tzinfo=UTC)
    assert len(set(found)) == 1440
    assert list(ticks(entry, found[0], 0)) == []


def test_a_clocks_callsite_carries_the_minute() -> None:
    assert callsite(datetime(2026, 1, 2, 3, 4, 59, tzinfo=UTC)) == "clock 2026-01-02T03:04Z"


# Workers


def handler(ctx: object, args: object) -> str:
    return "ok"


def worker(**changes: Any) -> Worker:
    return Worker(**{"queue": "apollo", "handlers": {"apollo.Ok": handler}} | changes)


def test_a_worker_has_the_defaults_that_the_design_names() -> None:
    made = worker()
    assert (made.throttle, made.job_timeout, made.poll_interval, made.dedupe) == (None, 300, 30, frozenset())


@pytest.mark.parametrize("queue", ["a", "git.hub_2-x", "A" * 40, "7"])
def test_a_queues_name_is_letters_digits_and_three_signs(queue: str) -> None:
    assert worker(queue=queue).queue == queue


@pytest.mark.parametrize("queue", ["", "a b", "a/b", "a@b", "a\n", "ü", "-a", ".a", "A" * 41, "parent"])
def test_another_name_is_refused(queue: str) -> None:
    with pytest.raises(ValueError, match="queue name"):
        worker(queue=queue)


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan])
@pytest.mark.parametrize("limit", ["job_timeout", "poll_interval"])
def test_a_limit_is_more_than_nothing_and_less_than_forever(limit: str, seconds: float) -> None:
    with pytest.raises(ValueError, match=limit):
        worker(**{limit: seconds})


def test_a_worker_has_handlers_and_dedupes_only_those() -> None:
    with pytest.raises(ValueError, match="no handlers"):
        worker(handlers={})
    with pytest.raises(ValueError, match=r"dedupe names no handler of it: apollo\.Other"):
        worker(dedupe={"apollo.Ok", "apollo.Other"})
    assert worker(dedupe={"apollo.Ok"}).dedupe == {"apollo.Ok"}


@pytest.mark.parametrize("name", ["", "x" * 201, "ü" * 101])
def test_a_jobs_name_has_1_to_200_bytes(name: str) -> None:
    with pytest.raises(ValueError, match="1 to 200 bytes"):
        worker(handlers={name: handler})
    worker(handlers={"x" * 200: handler})


def needs_client(ctx: object, args: object, *, client: object) -> str:
    return "ok"


@pytest.mark.parametrize("wrong", [lambda: "ok", lambda ctx: "ok", needs_client, lambda ctx, args, third: "ok"])
def test_a_handler_that_does_not_take_ctx_and_args_is_refused(wrong: Callable[..., str]) -> None:
    with pytest.raises(ValueError, match=r"apollo\.X must take \(ctx, args\)"):
        worker(handlers={"apollo.X": wrong})


def test_a_partial_that_leaves_ctx_and_args_is_a_handler() -> None:
    worker(handlers={"apollo.X": partial(needs_client, client=None)})


def test_a_worker_is_frozen_and_a_copy_of_what_it_was_made_of() -> None:
    handlers = {"apollo.Ok": handler}
    made = worker(handlers=handlers)
    handlers.clear()
    assert dict(made.handlers) == {"apollo.Ok": handler}
    with pytest.raises(TypeError):
        made.handlers["apollo.Other"] = handler  # type: ignore[index]
    with pytest.raises(AttributeError):
        made.queue = "other"  # type: ignore[misc]
