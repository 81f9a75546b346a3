"""The take-over rule as coded holds in every interleaving of the model, and the model finds what a broken rule does.

`pytest -rP` shows what was explored and the shortest way to each fault; larger sizes:
`python -m tests.model.lease HOSTS JOBS FAULTS [--unequal]`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from supervisor import lease
from supervisor.lease import Left, Verdict
from tests.model.explore import Explored, explore
from tests.model.lease import BRIEF, CUT, LATE, UNSEEN, Model, Rules
from tests.model.world import World, started

pytestmark = pytest.mark.slow  # the whole file


@dataclass(frozen=True)
class Size:
    hosts: int
    jobs: int
    faults: int
    unequal: bool = False

    def explore(self, rules: Rules | None = None) -> Explored[World]:
        found = explore(Model(self.hosts, self.jobs, unequal=self.unequal, rules=rules), self.faults)
        print(told(found))  # noqa: T201 - what `pytest -rP` shows
        return found

    def __str__(self) -> str:
        return f"{self.hosts} hosts, {self.jobs} jobs, {self.faults} faults{', unequal timeouts' * self.unequal}"


def told(found: Explored[World]) -> str:
    lines = [f"{len(found.worlds)} states"]
    for limit, count in found.limits.items():
        lines.append(f"known limit, {count} times: {limit}: {' | '.join(found.examples[limit])}")
    if found.wrong:
        lines.append(f"{found.wrong}: {' | '.join(found.path)}")
    return "\n".join(lines)


SIZES = {
    Size(1, 2, 4): set[str](),
    Size(2, 2, 2): {CUT, LATE, BRIEF},
    Size(3, 1, 1): {CUT},
    Size(2, 1, 1, unequal=True): {CUT, UNSEEN},
}


@pytest.mark.slow
@pytest.mark.parametrize(("size", "limits"), SIZES.items(), ids=map(str, SIZES))
def test_no_job_overlaps_repeats_or_strands_but_by_a_known_limit(size: Size, limits: set[str]) -> None:
    """No two handlers at once, none begins twice, no running job's row is ended by another, every row becomes final.

    The last holds from every state on, without a further fault, without the sweep and without the return of any host,
    as long as one is up and reaches the database.
    """
    found = size.explore()
    assert not found.wrong, told(found)
    assert set(found.limits) == limits, told(found)
    assert all(len(started(world)) <= 1 for world in found.worlds)


def never_waits(left: Left, **facts: Any) -> Verdict:
    decision = lease.verdict(left, **facts)
    return Verdict.INTERRUPT if decision is Verdict.WAIT and facts["looked"] >= facts["settle"] else decision


def never_looks_first(left: Left, **facts: Any) -> Verdict:
    return lease.verdict(left, **facts | {"looked": facts["settle"]})


def deadline_without_the_grace(left: Left, **facts: Any) -> Verdict:
    return lease.verdict(left, **facts | {"now": facts["now"] + facts["grace"]})


def runs_its_intent_though_it_met_another(left: Left, **facts: Any) -> Verdict:
    decision = lease.verdict(left, **facts)
    return Verdict.RUN if decision is Verdict.WAIT and left.id == facts["intent"] else decision


def runs_its_intent_though_it_was_deaf(left: Left, **facts: Any) -> Verdict:
    return lease.verdict(left, **facts | {"witness": replace(facts["witness"], listening_since=0.0)})


def waits_for_ever(left: Left, **facts: Any) -> Verdict:
    return lease.verdict(left, **facts | {"now": 0.0})


INTERRUPTS, REPEATS = "interrupts a running job", "runs a job again"
BROKEN_VERDICTS = [
    pytest.param(verdict, size, wrong, id=verdict.__name__)
    for verdict, size, wrong in [
        (never_waits, Size(2, 1, 1), INTERRUPTS),
        (never_looks_first, Size(2, 1, 1), INTERRUPTS),
        (deadline_without_the_grace, Size(2, 1, 1), INTERRUPTS),
        (runs_its_intent_though_it_met_another, Size(2, 1, 2), REPEATS),
        (runs_its_intent_though_it_was_deaf, Size(2, 1, 2), REPEATS),
        (waits_for_ever, Size(2, 1, 1), "a row cannot become final"),
    ]
]


@pytest.mark.parametrize(("verdict", "size", "wrong"), BROKEN_VERDICTS)
def test_the_model_finds_what_a_broken_verdict_does(verdict: Callable[..., Verdict], size: Size, wrong: str) -> None:
    found = size.explore(Rules(verdict=verdict))
    assert found.wrong == wrong, told(found)


BROKEN_RULES = {
    "the sweep has no margin": (Rules(sweep_margin=0.0), Size(1, 1, 0), INTERRUPTS),
    "a parent that hears a lot does not look": (Rules(looks_when_busy=False), Size(2, 1, 1), INTERRUPTS),
    "other hosts' timeouts are not heeded": (Rules(heeds_timeouts=False), Size(2, 1, 0, unequal=True), INTERRUPTS),
    "the kernel does not kill": (Rules(kernel_kills=False), Size(2, 1, 0), INTERRUPTS),
    "a claim needs no lease": (Rules(claims_under_lease=False), Size(2, 2, 1), "two handlers at once"),
    "a retried finalize claims": (Rules(retry_claims=True), Size(2, 3, 1), "two handlers at once"),
}


@pytest.mark.parametrize(("rules", "size", "wrong"), BROKEN_RULES.values(), ids=BROKEN_RULES)
def test_the_model_finds_what_a_broken_rule_does(rules: Rules, size: Size, wrong: str) -> None:
    found = size.explore(rules)
    assert found.wrong == wrong, told(found)
