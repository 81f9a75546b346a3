"""The stream of faults of a chaos run: data, drawn from a seed, so that the seed replays it.

What the README names as known limits is not in it; everything else may meet everything:

- A host is blinded (its relay stalled, its packets dropped, its connections refused, its parent frozen) only while
  both hosts are up and know each other, for less than BLIND_LONGEST, with time to meet between two blindings. And no
  host boots (a restart, a reload) while another is blinded: that is "a host that is cut off in mid-job, and another
  that has not met it since a minute before the job began".
- Parents are given the whole of Limits.settle to be back after a restart of the server, as the engine's default is;
  a frozen parent would not be, so freezing is a blinding.
- No machine is suspended, there is no failover, and both hosts have the same timeouts.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

EVERY = 0.6  # seconds between two faults of a child or a session, on average
BLIND_LONGEST = 8.0  # seconds, of the minute for which a meeting counts
MEETING = 4.0  # seconds after a blinding in which the hosts see each other again: a ping and a reconnection
BOOTING = 8.0  # seconds that a boot is given before a blinding
SERVER_REST = 6.0  # seconds between two faults of the whole server

HOSTS = 2

# How often, among those of its group, each comes.
CHILD = {"child killed": 24, "child frozen": 12, "child told to stop": 6}
SESSION = {
    "session of a child terminated": 14,
    "session of a parent terminated": 6,
    "session of any kind terminated": 8,
    "connections cut": 7,
}
BLINDING = {
    "relay stalled": 6,
    "relay stalled towards the server": 5,
    "relay stalled towards the client": 5,
    "relay dropped": 4,
    "relay dropped towards the server": 4,
    "relay dropped towards the client": 5,
    "connections cut and refused": 6,
    "parent frozen": 8,
}
BOOT = {"parent told to stop": 6, "parent killed": 6, "both parents killed": 3, "parent told to reload": 4}
SERVER = {"server restarted fast": 2, "server restarted immediate": 2, "server away": 2, "server frozen": 2}
OUTAGES = {*BLINDING, "server away", "server frozen"} - {"parent frozen"}
KINDS = {**CHILD, **SESSION, **BLINDING, **BOOT, **SERVER}


@dataclass(frozen=True, slots=True)
class Fault:
    at: float  # seconds from the start of the run
    kind: str
    host: int
    pick: float  # in [0, 1): which of the children or sessions there are then
    busy: bool  # prefer a child that shows a job
    seconds: float  # of a freeze, a stall, an outage; or until the next start
    later: float  # the second host's start after the first's


def schedule(seed: int, seconds: float) -> list[Fault]:
    """The faults of the first `seconds` seconds, in order."""
    draw = random.Random(seed)
    faults = [*_small(draw, seconds), *_of_hosts(draw, seconds), *_of_the_server(draw, seconds)]
    return sorted(faults, key=lambda fault: fault.at)


def _small(draw: random.Random, seconds: float) -> Iterator[Fault]:
    at = 0.0
    while (at := at + draw.expovariate(1 / EVERY)) < seconds:
        yield _fault(draw, at, {**CHILD, **SESSION})


def _of_hosts(draw: random.Random, seconds: float) -> Iterator[Fault]:
    """Blindings and boots, of which neither meets the other."""
    at, seen = 0.0, BOOTING
    while at < seconds:
        kinds = draw.choice((BLINDING, BOOT))
        at = max(at, seen) if kinds is BLINDING else at
        fault = _fault(draw, at, kinds)
        yield fault
        over = at + fault.seconds
        if kinds is BLINDING:
            at = seen = over + MEETING + draw.uniform(0.0, 1.0)
        else:
            at, seen = over + draw.uniform(0.2, 5.0), over + fault.later + BOOTING


def _of_the_server(draw: random.Random, seconds: float) -> Iterator[Fault]:
    at = draw.uniform(0.0, SERVER_REST)
    while at < seconds:
        fault = _fault(draw, at, SERVER)
        yield fault
        at += fault.seconds + draw.uniform(SERVER_REST, 2 * SERVER_REST)


def _fault(draw: random.Random, at: float, kinds: Mapping[str, float]) -> Fault:
    [kind] = draw.choices(list(kinds), list(kinds.values()))
    return Fault(
        at=at,
        kind=kind,
        host=draw.randrange(HOSTS),
        pick=draw.random(),
        busy=draw.random() < 0.7,
        seconds=_seconds(draw, kind),
        later=draw.choice((0.0, 3.0, 8.0)) if kind == "both parents killed" else 0.0,
    )


def _seconds(draw: random.Random, kind: str) -> float:
    if kind in BLINDING:
        return draw.choice((draw.uniform(0.1, 2), draw.uniform(2, BLIND_LONGEST)))
    if kind == "child frozen":
        return draw.choice((draw.uniform(0.05, 1), draw.uniform(1, 12)))
    if kind in BOOT:
        return draw.choice((0.0, 0.0, draw.uniform(0, 5)))
    if kind in ("server away", "server frozen"):
        return draw.uniform(0.2, 5)
    return 0.0
