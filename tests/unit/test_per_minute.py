"""per_minute(): the throttle that most queues have, as a pure function."""

import math

import pytest

from supervisor import per_minute

AFTER = {"err: rate limited": 60.0, "err: HTTP 5": 10.0, "err: HTTP 529": 30.0, "err: ": 2.0}


@pytest.mark.parametrize(("elapsed", "rest"), [(0.0, 0.4), (0.1, 0.3), (0.4, 0.0), (7.0, 0.0)])
def test_a_job_rests_what_it_has_left_of_its_share_of_the_minute(elapsed: float, rest: float) -> None:
    assert per_minute(150)("ok", None, elapsed) == pytest.approx(rest)


@pytest.mark.parametrize(
    ("status", "rest"),
    [
        ("ok", 0.4),
        ("fail: no match", 0.4),
        ("skip: fresh", 0.4),
        ("ok: err: HTTP 500", 0.4),
        ("err: no such table", 2.0),
        ("err: HTTP 500", 10.0),
        ("err: HTTP 529", 30.0),
        ("err: rate limited, retry after 3412s", 60.0),
    ],
)
def test_a_status_that_begins_as_a_key_of_the_table_backs_off(status: str, rest: float) -> None:
    throttle = per_minute(150, backoff=AFTER)
    assert throttle(status, None, 0.0) == pytest.approx(rest)
    assert throttle(status, RuntimeError("not asked"), 0.0) == pytest.approx(rest)


def test_a_long_job_backs_off_all_the_same_and_a_slow_pace_is_not_made_quicker() -> None:
    assert per_minute(150, backoff=AFTER)("err: HTTP 500", None, 99.0) == 10.0
    assert per_minute(2, backoff=AFTER)("err: HTTP 500", None, 1.0) == 29.0


def test_the_table_is_the_throttles_own() -> None:
    given = {"err: ": 5.0}
    throttle = per_minute(60, backoff=given)
    given["err: "] = 0.0
    assert throttle("err: x", None, 0.0) == 5.0


@pytest.mark.parametrize("jobs", [0, -1, math.nan, math.inf])
def test_a_pace_is_more_than_nothing_and_less_than_forever(jobs: float) -> None:
    with pytest.raises(ValueError, match="per_minute"):
        per_minute(jobs)
