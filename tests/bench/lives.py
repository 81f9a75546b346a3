"""boot and drain, crash, hand-over: how long a queue has no poller while processes come and go."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from statistics import median
from typing import Any

from supervisor import lease
from supervisor.db import asking
from supervisor.scoreboard import Doing
from tests.bench.place import Database, Place
from tests.bench.processes import Service
from tests.bench.registry import QUEUES
from tests.bench.table import Reach, Row, below, row

QUEUE = QUEUES[0]


def seconds(scenario: str, measure: str, taken: list[float], reach: Reach | None = None, note: str = "") -> Row:
    spread = f"{len(taken)} times, {min(taken):.3f} to {max(taken):.3f}"
    return row(scenario, f"{measure}, s", median(taken), reach=reach, note=f"{spread}; {note}" if note else spread)


def boot(place: Place, series: dict[str, Any]) -> Iterator[Row]:
    queues = QUEUES[: place.sizes.queues]
    loads, boots, drains, crashes = list[float](), list[float](), list[float](), list[float]()
    with place.database() as database:
        for number in range(place.sizes.lives):
            began = time.monotonic()
            with place.service(database, *queues, idle=False) as service:
                parent = service.supervised.parent
                loaded = service.wait(lambda parent=parent: parent.title.startswith("paceline:"))  # type: ignore[misc]
                idle = service.wait_idle()
                loads.append(loaded - began)
                boots.append(idle - loaded)
                crashes.append(crash(service, number % len(queues)))
                told = time.monotonic()
                service.supervised.terminate()
                service.supervised.wait()
                drains.append(time.monotonic() - told)
    yield seconds("boot", "exec to imports done", loads)
    yield seconds("boot", f"imports done to {len(queues)} queues idle", boots, below(1.0))
    yield seconds("boot", "crash to its replacement's readiness", crashes, below(0.15))
    yield seconds("boot", "SIGTERM to exit, all idle", drains, below(0.3))


def crash(service: Service, slot: int) -> float:
    """Seconds from a child's SIGKILL until its replacement holds the lease and is idle."""
    pid = service.board.pid(slot)
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    ready = service.wait(lambda: service.board.pid(slot) not in (0, pid) and service.board.doing(slot) is Doing.IDLE)
    return ready - began


def hand_over(place: Place, series: dict[str, Any]) -> Iterator[Row]:
    """A queue's lease goes from a host that ends to one that stands by."""
    with place.database() as database:
        graceful = [gap for _ in range(place.sizes.lives) for gap in [change_hands(place, database, drain)]]
        killed = [change_hands(place, database, Service.kill_tree) for _ in range(place.sizes.lives)]
    yield seconds("hand-over", "lease free after a drain", graceful, below(0.020))
    yield seconds("hand-over", "SIGKILL of the holder's tree to lease", killed, below(1.5))


def drain(service: Service) -> None:
    service.supervised.terminate()


def change_hands(place: Place, database: Database, end: Callable[[Service], float | None]) -> float:
    """Seconds from the last sight of the old holder, or from the moment that `end` tells, to the new one."""
    with ExitStack() as stack:
        old = place.service(database, QUEUE, host="host-a")
        first = stack.enter_context(old)
        second = stack.enter_context(place.service(database, QUEUE, host="host-b", idle=False))
        second.wait_idle(Doing.STANDBY)
        second.wait(lambda: not database.ask(_STANDBYS))  # whose child looked, and has hung up
        time.sleep(random.random())  # its parent looks once a second: at any moment of that
        [holder] = holders(database)
        moment = end(first)
        last = time.monotonic()
        while (found := holders(database)) in ([holder], []):
            if found:
                last = time.monotonic()
        taken = time.monotonic()
        first.supervised.wait()
    return taken - (last if moment is None else moment)


_STANDBYS = (
    "SELECT FROM pg_stat_activity WHERE datname = current_database()"
    f" AND application_name LIKE 'paceline:{QUEUE}/%@host-b'"
)


def holders(database: Database) -> list[int]:
    found = lease.lease_holder(asking(database.connection), QUEUE)
    return [found[0]] if found else []
