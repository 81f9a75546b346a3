"""The state that the model of the lease walks through: hosts, rows, who holds the lease; and how its parts change.

What each flag stands for, and how time is abstracted, is told in tests/model/lease.py.
"""

from enum import IntEnum
from typing import Any, NamedTuple

from supervisor.config import Limits

LIMITS = Limits()
NONE = -1  # no row


class Phase(IntEnum):
    """Where a host's child stands."""

    SEEKING = 0  # no lease; or it is dead, and its replacement has not acted yet
    SETTLING = 1
    READY = 2
    CLAIMED = 3  # the claim is committed, the answer is on its way or is dated anew
    RUNNING = 4
    DONE = 5  # the handler has ended, the row has not
    ADRIFT = 6  # the same, and the session that held the lease is given up


HOLDING = frozenset({Phase.SETTLING, Phase.READY, Phase.CLAIMED, Phase.RUNNING, Phase.DONE})
WITH_JOB = frozenset({Phase.RUNNING, Phase.DONE, Phase.ADRIFT})


class Host(NamedTuple):
    timeout: float
    up: bool = False
    linked: bool = True  # it reaches the database
    parent: bool = False  # its parent has a session, as the server sees it
    holds: bool = False  # a session of its child holds the lease, as the server sees it
    met: bool = False  # another parent, since the later of its boot and a minute before the row's start
    heard: bool = False  # its parent has listened since before the row's start, where it may mean to claim that row
    together: bool = False  # it and the running host have both had a parent's session since the row's start
    saw: bool = False  # a session with a longer timeout
    late: bool = False
    draining: bool = False
    phase: Phase = Phase.SEEKING
    job: int = NONE
    intent: int = NONE  # in the slot: the row it means to claim
    left: int = NONE  # in the slot: the row that the dead child ran
    flying: bool = False  # the claim of `intent` is under way on a session that was given up


class Row(NamedTuple):
    status: str = "pending"
    age: float = 0.0
    begun: bool = False  # its handler began


FINAL = Row("final", 0.0, True)


class World(NamedTuple):
    hosts: tuple[Host, ...]
    rows: tuple[Row, ...]
    ghost: bool = False  # a session of some host's earlier life holds the lease


def change(world: World, number: int, **to: Any) -> World:
    hosts = world.hosts
    return world._replace(hosts=(*hosts[:number], hosts[number]._replace(**to), *hosts[number + 1 :]))


def of_all(world: World, **to: Any) -> World:
    return world._replace(hosts=tuple(host._replace(**to) for host in world.hosts))


def set_row(world: World, job: int, row: Row) -> World:
    return world._replace(rows=(*world.rows[:job], row, *world.rows[job + 1 :]))


def started(world: World) -> list[int]:
    return [job for job, row in enumerate(world.rows) if row.status == "started"]


def start_row(world: World, number: int, job: int) -> World:
    """Host `number` has claimed the row, or dated it anew."""
    seen = world.hosts[number].parent
    for other, host in enumerate(world.hosts):
        near = host.parent and seen and other != number
        may_mean_it = host.intent == job or host.phase in (Phase.READY, Phase.RUNNING, Phase.DONE)
        world = change(world, other, heard=host.parent and may_mean_it, together=near)
        if host.phase == Phase.CLAIMED and host.job == job and other != number:
            world = change(world, other, phase=Phase.SEEKING, job=NONE)  # too late: its deadline counts from its claim
    return set_row(world, job, Row("started", 0.0, world.rows[job].begun))


def end_row(world: World, job: int) -> World:
    world = set_row(world, job, FINAL)
    return world if started(world) else of_all(world, heard=False, together=False)


def connect(world: World, number: int) -> World:
    """The parent says hello and looks around."""
    world = change(world, number, parent=True)
    if sum(host.parent for host in world.hosts) > 1:
        world = world._replace(hosts=tuple(host._replace(met=host.met or host.parent) for host in world.hosts))
    if any(host.phase in (Phase.CLAIMED, Phase.RUNNING) and host.parent for host in world.hosts):
        hosts = (
            host._replace(together=host.together or (host.parent and host.phase not in (Phase.CLAIMED, Phase.RUNNING)))
            for host in world.hosts
        )
        world = world._replace(hosts=tuple(hosts))
    return look(world, number)


def look(world: World, number: int) -> World:
    longer = any(host.holds and host.timeout > world.hosts[number].timeout for host in world.hosts)
    return change(world, number, saw=True) if longer else world


def back(world: World) -> bool:
    """Each parent that can reach the server has its session, and has looked: seconds may pass."""
    return all(host.parent or host.late or not (host.up and host.linked) for host in world.hosts)


def forget(world: World, *, looking: bool = True) -> World:
    """A minute passes: who meets nobody has met nobody of late."""
    meeting = looking and sum(host.parent for host in world.hosts) > 1
    hosts = tuple(host._replace(met=host.met and meeting and host.parent) for host in world.hosts)
    return world._replace(hosts=hosts)


def off(world: World, number: int) -> World:
    """The host's processes are gone, and their sessions, where the server can know."""
    host = world.hosts[number]
    cut = not host.linked and (host.parent or host.holds)
    gone = Host(host.timeout, linked=not cut, parent=cut and host.parent, holds=cut and host.holds)
    return world._replace(hosts=(*world.hosts[:number], gone, *world.hosts[number + 1 :]))


def dead_by(timeout: float) -> float:
    """The age of a row at which the kernel has killed its process."""
    return timeout + LIMITS.grace


def runner(world: World, job: int) -> Host | None:
    """The host that runs the row's handler, or may yet begin it."""
    for host in world.hosts:
        fresh = host.phase == Phase.CLAIMED and world.rows[job].age < dead_by(host.timeout)
        if host.job == job and (host.phase == Phase.RUNNING or fresh):
            return host
    return None
