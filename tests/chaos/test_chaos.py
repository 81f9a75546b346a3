"""The promises hold under a seeded stream of faults; and the judge who says so sees what breaks them.

A short run here; `make chaos SECONDS=300 SEED=1` is a long one.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.__main__ import chaos, tally
from tests.chaos.schedule import BLINDING, BOOT, KINDS, schedule
from tests.chaos.verdict import (
    KILLED_BEFORE_SLOT,
    KILLED_BY_OTHERS,
    KILLED_WITH_SLOTS,
    TOLD,
    Evidence,
    Feed,
    Line,
    judge,
)

SECONDS, SEED = 15, 3


@pytest.mark.slow
def test_under_a_stream_of_faults_nothing_is_lost_repeated_overlapping_stranded_or_untrue(tmp_path: Path) -> None:
    judgement, injected = chaos(tmp_path, SECONDS, SEED)
    print(tally(judgement, injected))  # noqa: T201 - what `pytest -rP` shows
    assert not judgement.wrong, "\n".join([*judgement.wrong, tally(judgement, injected)])
    assert judgement.outcomes["ok"] > 100


def test_a_seed_replays_its_schedule_and_every_kind_of_fault_comes() -> None:
    assert schedule(1, 300) == schedule(1, 300) != schedule(2, 300)
    assert {fault.kind for seed in range(5) for fault in schedule(seed, 300)} == set(KINDS)


def test_no_host_is_told_to_boot_while_one_is_blinded() -> None:
    for seed in range(20):
        seen = 0.0
        for fault in schedule(seed, 300):
            if fault.kind in BLINDING:
                seen = fault.at + fault.seconds
            assert fault.kind not in BOOT or fault.at >= seen


# The judge: one job, whose evidence is broken in one way


def line(what: str, time: float, id: int = 7, **more: Any) -> Line:
    if what == "begin":
        more = {"name": "Quick", "parent": 10, "host": "host-a", "pid": 11, "born": 12} | more
    if what == "end":
        more = {"how": "returned", "text": "ok"} | more
    return {"what": what, "time": time, "id": id, **more}


def evidence(*book: Line, status: str = "ok", **more: Any) -> Evidence:
    given: dict[str, Any] = {
        "rows": [(7, "quick-a", "Quick", 1, status, None, None)],
        "effects": set(),
        "feed": Feed(frozenset({1}), {1: 7}),
        "books": {"quick-a": book or (line("begin", 100.0), line("end", 100.1))},
        "grace": 1.5,
    }
    return Evidence(**given | more)


def test_a_job_that_began_once_and_ended_as_its_row_says_is_right() -> None:
    assert judge(evidence()).wrong == []


KILLED: dict[str, Any] = {"status": "err: interrupted: SIGKILL", "kills": [(100.2, 11, 12, 0)]}


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (evidence(rows=[]), "was enqueued and is lost"),
        (evidence(feed=Feed(frozenset(), {})), "was never enqueued"),
        (evidence(rows=[*evidence().rows, (8, "quick-a", "Quick", 1, "ok", None, None)]), "in the table twice"),
        (evidence(status="started"), "is not final"),
        (evidence(status="pending"), "is not final"),
        (evidence(line("begin", 100.0), line("begin", 101.0), line("end", 101.1)), "began more than once"),
        (evidence(line("begin", 100.0)), "did not end"),
        (evidence(line("begin", 100.0), line("end", 100.1, text="skip: no")), "answered something else"),
        (evidence(line("begin", 100.0), line("end", 100.1, how="raised")), "its handler raised"),
        (evidence(status="err: interrupted"), "its handler had ended"),
        (evidence(**KILLED | {"kills": [(100.2, 11, 12, 7)]}), "its handler had ended"),
        (evidence(status="err: timeout after 2s"), "ended well before its deadline"),
        (
            evidence(line("begin", 100.0), status="err: timeout after 2s", kills=[(100.3, 11, 12, 0)]),
            "killed well before its deadline",
        ),
        (evidence(rows=[(7, "quick-a", "Database", 1, "ok", None, None)]), "committed is not there"),
        (
            evidence(line("begin", 100.0), line("begin", 100.05, id=8), line("end", 100.1), line("end", 100.2, id=8)),
            "8 began before the end of 7",
        ),
        (evidence(line("begin", 100.0), line("begin", 101.0, id=8), line("overlap", 101.0, id=8, other=7)), "7 was"),
        (evidence(line("begin", 99.0, id=8), line("end", 99.1, id=8), *evidence().books["quick-a"]), "7 began after 8"),
    ],
)
def test_the_judge_sees(broken: Evidence, says: str) -> None:
    assert any(says in wrong for wrong in judge(broken).wrong), judge(broken).wrong


@pytest.mark.parametrize(
    ("allowed", "counted_as"),
    [
        (evidence(**KILLED), KILLED_BEFORE_SLOT),
        (evidence(**KILLED | {"kills": []}), KILLED_BY_OTHERS),
        (evidence(**KILLED | {"kills": [(100.2, 11, 12, 6)]}), KILLED_BEFORE_SLOT),  # of the job before it
        (evidence(status="err: interrupted", told={7: "ok"}), TOLD),
        (evidence(status="err: interrupted", killed_parents=[(100.2, 10)]), KILLED_WITH_SLOTS),
        (evidence(line("begin", 100.0), status="err: interrupted: SIGSEGV"), "interrupted"),
        (evidence(line("begin", 100.0), line("end", 101.9), status="err: timeout after 2s"), "timeout"),
    ],
)
def test_the_judge_counts(allowed: Evidence, counted_as: str) -> None:
    judgement = judge(allowed)
    assert not judgement.wrong
    assert dict(judgement.outcomes) == {counted_as: 1}
