"""The take-over rule as coded, among every interleaving of hosts, crashes, cuts and lost sessions, on one queue.

    python -m tests.model.lease HOSTS JOBS FAULTS [--unequal]

The decision (interrupt, wait, run) is supervisor.lease.verdict itself. Around it is what the processes do, in atomic
steps: boot and hello, replace a dead child, end its row from the slot, take the lease, settle, claim, re-date, begin,
finalize (alone, or with the next claim), sweep, drain. What goes wrong, FAULTS times in a run: a host or a child is
killed, the lease's or the parent's session is lost, a host is cut off, the database restarts or is away for minutes, a
host is told to drain, a parent is late. An answer is lost by losing the session, or the network, after the commit.

Time is abstract, so that there is an end to it:
- A row's age is one of the moments that some rule tells apart: fresh, in the grace, past its deadline, past the sweep's
  margin, for each timeout. It grows at any time, unless a handler would outlive its kernel's kill by that.
- At most one row is started at any time (the test asserts it), so that a host's flags are about that row's start.
  "Met another parent since the later of the boot and a minute before the row's start" is one, which falls only while
  no row is started; "listens since before the row's start" is another. decide() asks verdict() about each kind of
  times that the flags stand for, and insists on one answer.
- What takes seconds or more (the grace of settling, a minute, a row's age, the server's giving up on a host that it
  cannot reach) passes only when each parent that can reach the server has its session: they reconnect within a second.
  One that is `late` does not; what goes wrong by it is counted as a known limit.
- Parents that have sessions at one moment have met: by a hello, or by the look that each takes every few seconds.

Not modelled: the order within a fetched batch, throttle and pause, a suspended machine, a failover that loses commits,
`retry`, `cancel` and `end` by a person.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf

from supervisor import lease
from supervisor.lease import MET_BEFORE, ROW_MARGIN, Left, Verdict, Witness
from tests.model.explore import Step, explore
from tests.model.world import (
    HOLDING,
    LIMITS,
    NONE,
    WITH_JOB,
    Host,
    Phase,
    Row,
    World,
    back,
    change,
    connect,
    dead_by,
    end_row,
    forget,
    look,
    of_all,
    off,
    runner,
    set_row,
    start_row,
    started,
)

SHORT, LONG = 100.0, 200.0  # job_timeout
START = 100_000.0  # of a row, by the server's clock

# What the rule does not cover, and the README says. Each is counted, and none may hide anything else.
LATE = "a parent was not back within the grace"
CUT = "the running host is cut off, and the other has not met it since a minute before the row's start"
UNSEEN = "a host with a shorter timeout never saw the session with the longer one"
BRIEF = "a host began the row and died within the second in which its parent was not back yet"


def known_limit(taker: Host, other: Host | None, age: float) -> str:
    """By which known limit `taker` acts on a row that `other` runs (None: ran, and died). Empty: by none."""
    if other is None:
        return BRIEF if taker.heard and not taker.together else ""
    if taker.late or other.late:
        return LATE
    if dead_by(taker.timeout) < age and taker.timeout < other.timeout and not taker.saw:
        return UNSEEN
    return CUT if not other.linked and not taker.together else ""


@dataclass(frozen=True)
class Rules:
    """The rules as coded. A test breaks one, and sees the model find what that does."""

    verdict: Callable[..., Verdict] = lease.verdict
    sweep_margin: float = LIMITS.sweep_margin
    looks_when_busy: bool = True  # a parent looks around every few seconds, also when it hears a lot
    heeds_timeouts: bool = True  # that other hosts' sessions have shown
    kernel_kills: bool = True
    claims_under_lease: bool = True
    retry_claims: bool = False  # a finalize retried on a new connection carries the next claim along
    asked: dict[tuple[object, ...], Verdict] = field(default_factory=dict, compare=False)

    def decide(self, intent: bool, met: bool, heard: bool, settled: bool, age: float, timeout: float) -> Verdict:
        """What verdict() says, for all the times that these facts stand for."""
        facts = (intent, met, heard, settled, age, timeout)
        if facts not in self.asked:
            answers = {
                self.verdict(
                    Left(7, START),
                    intent=7 if intent else 0,
                    witness=witness,
                    looked=LIMITS.settle if settled else LIMITS.settle - 0.5,
                    settle=LIMITS.settle,
                    timeout=timeout,
                    grace=LIMITS.grace,
                    now=START + age,
                )
                for witness in witnesses(met=met, heard=heard)
            }
            assert len(answers) == 1, f"the model is too coarse for this rule: {facts}: {answers}"
            self.asked[facts] = answers.pop()
        return self.asked[facts]


def witnesses(*, met: bool, heard: bool) -> Iterator[Witness]:
    """Each kind of witness that the two flags stand for, around a row's START."""
    before, after = START - 1000, START + 1
    for booted in (before,) if heard else (before, after):  # an ear is not older than its parent
        for met_at in (max(booted, START - MET_BEFORE), after) if met else (0.0, START - MET_BEFORE - 1):
            for listening_since in (booted, START) if heard else (after, inf):
                if met_at >= booted or not met_at:
                    yield Witness(booted, met_at, listening_since)


class Model:
    def __init__(self, hosts: int, jobs: int, *, unequal: bool = False, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        timeouts = [LONG if unequal else SHORT, *[SHORT] * (hosts - 1)]
        moments = [(t + LIMITS.grace / 2, dead_by(t) + ROW_MARGIN, t + LIMITS.sweep_margin + 1) for t in timeouts]
        self.ages = sorted({age for ages in moments for age in ages})
        self.start = World(tuple(Host(timeout) for timeout in timeouts), (Row(),) * jobs)

    def alike(self, world: World) -> World:
        return world._replace(hosts=tuple(sorted(world.hosts)))

    def served(self, world: World) -> bool:
        return any(host.up and host.linked and not host.draining for host in world.hosts)

    def over(self, world: World) -> bool:
        return all(row.status == "final" for row in world.rows)

    def steps(self, world: World, *, faults: bool) -> Iterator[Step[World]]:
        for number, host in enumerate(world.hosts):
            name = "ABCDEFGH"[number]
            mine = [self.server_steps(world, number, host)]
            if host.up:
                mine += [self.parent_steps(world, number, host), self.child_steps(world, number, host)]
            if faults:
                mine += [self.faults(world, number, host)]
            for step in (step for steps in mine for step in steps):
                yield step._replace(name=f"{name} {step.name}")
        yield from self.time_steps(world)
        if faults:
            lost = of_all(world, parent=False, holds=False, flying=False, heard=False)._replace(ghost=False)
            yield Step("DATABASE RESTARTS", lost, fault=True)
            if not started(world):
                yield Step("DATABASE AWAY FOR MINUTES", forget(lost), fault=True)

    # --- what processes do

    def parent_steps(self, world: World, number: int, host: Host) -> Iterator[Step[World]]:
        if host.draining and host.phase == Phase.SEEKING:
            ends = host.linked and host.left != NONE
            yield Step("has drained", off(end_row(world, host.left) if ends else world, number))
        if not host.linked:
            return
        if not host.parent:
            yield Step("parent connects", connect(world, number))
            return
        if not host.saw and look(world, number) is not world:
            yield Step("sees a longer timeout", look(world, number))
        for job in started(world):
            if world.rows[job].age > self.known_timeout(world, host) + self.rules.sweep_margin:
                yield self.interrupts(f"sweeps {job}", world, host, job)._replace(rescue=True)

    def child_steps(self, world: World, number: int, host: Host) -> Iterator[Step[World]]:
        phase, job = host.phase, host.job
        leased = host.linked and host.holds
        lost = phase in HOLDING and not leased
        following = next((j for j, row in enumerate(world.rows) if row.status == "pending"), NONE)
        if host.draining:
            following = NONE
        if phase == Phase.SEEKING and host.linked and not host.draining:
            if host.left != NONE:
                yield Step(f"ends {host.left} from the slot", end_row(change(world, number, left=NONE), host.left))
            elif host.holds or not (world.ghost or any(other.holds for other in world.hosts)):
                taken = change(world, number, holds=True, flying=False, phase=Phase.SETTLING)
                yield Step("takes the lease", taken)
        elif phase == Phase.SETTLING and leased:
            yield from self.settle(world, number, host)
        elif phase == Phase.READY and following != NONE:
            if leased or (host.linked and not self.rules.claims_under_lease):
                yield self.claims(f"claims {following}", world, number, following)
        elif phase == Phase.CLAIMED:
            row = world.rows[job]
            if row.status == "started" and row.age < dead_by(host.timeout):
                yield self.begins(world, number, job)
            if leased and row.status == "started" and row.age:
                yield from self.dates_anew("dates anew", world, number, job)
            if leased and row.status != "started":
                yield Step("finds its row ended", change(world, number, phase=Phase.READY, job=NONE, intent=NONE))
        elif phase == Phase.RUNNING:
            yield Step(f"handler of {job} ends", change(world, number, phase=Phase.DONE))
            if self.rules.kernel_kills and world.rows[job].age >= host.timeout:
                yield Step("kernel kills the child", self.dead(world, number, host))
        elif phase in (Phase.DONE, Phase.ADRIFT) and host.linked:
            then = Phase.READY if leased and phase == Phase.DONE else Phase.SEEKING
            yield Step(f"finalizes {job}", end_row(change(world, number, phase=then, job=NONE), job))
            if following != NONE and (then == Phase.READY or self.rules.retry_claims):
                yield self.claims(f"finalizes {job}, claims {following}", end_row(world, job), number, following)
        if phase in (Phase.READY, Phase.DONE) and lost:
            then = Phase.ADRIFT if phase == Phase.DONE else Phase.SEEKING
            for meant in {following, *started(world)} - {NONE, job} if not host.draining else ():
                sent = change(world, number, phase=then, intent=meant, flying=host.holds)
                yield Step(f"claim of {meant} finds no session", sent)
        if phase == Phase.DONE and lost:
            yield Step("finalize finds no session", change(world, number, phase=Phase.ADRIFT))
        elif phase != Phase.RUNNING and lost:
            yield Step("finds its session lost", change(world, number, phase=Phase.SEEKING, job=NONE))
        if host.draining and phase in (Phase.SETTLING, Phase.READY):
            yield Step("child exits", change(world, number, phase=Phase.SEEKING, holds=host.holds and not host.linked))

    def settle(self, world: World, number: int, host: Host) -> Iterator[Step[World]]:
        """A look of the lease's new holder at the rows left started."""
        if not started(world):
            yield Step("has settled", change(world, number, phase=Phase.READY, intent=NONE))
        met = host.met or sum(other.parent for other in world.hosts) > host.parent
        for job in started(world):
            row, mine = world.rows[job], job == host.intent
            timeout = self.known_timeout(world, host)
            decision = self.rules.decide(mine, met, host.heard, back(world), row.age, timeout)
            if decision is Verdict.INTERRUPT:
                yield self.interrupts(f"interrupts {job}", world, host, job)
            elif decision is Verdict.RUN:
                other = runner(world, job)
                wrong = "runs a job that is running" if other else "runs a job again" if row.begun else ""
                limit = known_limit(host, other, row.age) if wrong else ""
                for step in self.dates_anew("means to run", world, number, job):
                    yield step._replace(wrong=wrong, limit=limit)

    def claims(self, name: str, world: World, number: int, job: int) -> Step[World]:
        return Step(name, start_row(change(world, number, phase=Phase.CLAIMED, job=job, intent=job), number, job))

    def dates_anew(self, name: str, world: World, number: int, job: int) -> Iterator[Step[World]]:
        """The row starts now, which may be more than a minute after a meeting that counted for its old start."""
        yield self.claims(f"{name} {job}", world, number, job)
        if back(world):
            yield self.claims(f"{name} {job}, after long", forget(world), number, job)

    def begins(self, world: World, number: int, job: int) -> Step[World]:
        row = world.rows[job]
        others = any(host.phase == Phase.RUNNING for host in world.hosts)
        wrong = "two handlers at once" if others else "a handler begins twice" if row.begun else ""
        begun = change(world, number, phase=Phase.RUNNING, intent=NONE)
        return Step(f"handler of {job} begins", set_row(begun, job, row._replace(begun=True)), wrong=wrong)

    def interrupts(self, name: str, world: World, taker: Host, job: int) -> Step[World]:
        other = runner(world, job)
        wrong = "interrupts a running job" if other else ""
        limit = known_limit(taker, other, world.rows[job].age) if other else ""
        return Step(name, end_row(world, job), wrong=wrong, limit=limit)

    def known_timeout(self, world: World, host: Host) -> float:
        """The largest that the host knows of."""
        return LONG if host.saw and self.rules.heeds_timeouts else host.timeout

    def dead(self, world: World, number: int, host: Host) -> World:
        """The child is dead. What it did is in the slot; the server does not know yet."""
        left = host.job if host.phase in WITH_JOB else host.left
        return change(world, number, phase=Phase.SEEKING, job=NONE, left=left)

    # --- what the server, the network and time do

    def server_steps(self, world: World, number: int, host: Host) -> Iterator[Step[World]]:
        if not host.up and host.linked:
            booting = world._replace(ghost=True) if host.holds else world
            booted = change(booting, number, up=True, holds=False, met=host.parent, together=False)
            yield Step("boots", connect(booted, number), rescue=True)
        if not host.linked:
            yield Step("is reachable again", change(world, number, linked=True), rescue=True)
        gone = not (host.up and host.linked) and back(world)
        if host.parent and gone:
            yield Step("is dropped by the server: parent", change(world, number, parent=False, heard=False))
        if host.holds and (gone or (host.linked and host.phase not in HOLDING)):
            yield Step("is dropped by the server: lease", change(world, number, holds=False, flying=False))
        if host.flying and world.rows[host.intent].status == "pending":
            ended = host.job if host.phase == Phase.ADRIFT else host.left  # what travelled with the claim
            late = start_row(change(world, number, flying=False), number, host.intent)
            yield Step(f"claim of {host.intent} is committed late", end_row(late, ended) if ended != NONE else late)

    def time_steps(self, world: World) -> Iterator[Step[World]]:
        looked = all(host.saw or not host.parent or look(world, n) is world for n, host in enumerate(world.hosts))
        if world.ghost and back(world):
            yield Step("an old session is dropped by the server", world._replace(ghost=False))
        if not started(world) and back(world):
            yield Step("a minute passes", forget(world, looking=self.rules.looks_when_busy))
        for job in started(world) if back(world) and looked else ():
            row, other = world.rows[job], runner(world, job)
            older = next((age for age in self.ages if age > row.age), None)
            if older is None:
                continue
            killed = other is not None and other.phase == Phase.RUNNING and older > dead_by(other.timeout)
            if not (killed and self.rules.kernel_kills):
                yield Step(f"{job} is {older:g} s old", set_row(world, job, row._replace(age=older)))

    def faults(self, world: World, number: int, host: Host) -> Iterator[Step[World]]:
        if host.holds:
            yield Step("LEASE LOST", change(world, number, holds=False, flying=False), fault=True)
        if not host.up:
            return
        yield Step("HOST DIES", off(world, number), fault=True)
        if host.phase != Phase.SEEKING:
            yield Step("CHILD KILLED", self.dead(world, number, host), fault=True)
        if host.linked:
            yield Step("CUT OFF", change(world, number, linked=False), fault=True)
        if host.parent:
            yield Step("PARENT'S SESSION LOST", change(world, number, parent=False, heard=False), fault=True)
        elif host.linked and not host.late:
            yield Step("PARENT LATE", change(world, number, late=True), fault=True)
        if not host.draining:
            yield Step("TOLD TO DRAIN", change(world, number, draining=True), fault=True)


def main() -> None:
    hosts, jobs, faults = (int(word) for word in sys.argv[1:4])
    began = time.monotonic()
    found = explore(Model(hosts, jobs, unequal="--unequal" in sys.argv), faults)
    sys.stdout.write(f"{len(found.worlds)} states, {time.monotonic() - began:.1f} s\n")
    for limit, count in found.limits.items():
        sys.stdout.write(f"known limit, {count} times: {limit}\n  {' | '.join(found.examples[limit])}\n")
    if found.wrong:
        sys.exit(f"WRONG: {found.wrong}\n  {' | '.join(found.path)}")


if __name__ == "__main__":
    main()
