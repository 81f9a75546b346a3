"""idle and memory: what forty queues cost while nothing is to be done, and what they keep."""

import time
from collections.abc import Generator, Iterable, Iterator
from statistics import mean, median
from typing import Any

from supervisor.scoreboard import Doing
from tests.bench.place import Database, Place
from tests.bench.processes import Service, processor_seconds, pss, server_processes
from tests.bench.registry import NOTHING, POOL, QUEUES
from tests.bench.table import Row, at_most, below, row

_LATE = 11.0  # seconds by which the server's statistics of an idle session may be late


def idle(place: Place, series: dict[str, Any]) -> Iterator[Row]:
    """One host; then a second one beside it, which stands by, and what that one costs."""
    queues = QUEUES[: place.sizes.queues]
    with place.database() as database, place.service(database, *queues) as works:
        alone = yield from spent(place, database, "a host", works, "@host-a", 0.0)
        with place.service(database, *queues, host="host-b", idle=False) as stands_by:
            stands_by.wait_idle(Doing.STANDBY)
            yield from spent(place, database, "a standby", stands_by, "@host-b", alone)
            held = [name for name in sessions(database, "@host-b").values() if "paceline:parent/" not in name]
            yield row("idle", "sessions of the standby's queues", len(held), reach=at_most(0))


def sessions(database: Database, host: str) -> dict[int, str]:
    """The name of each of the host's sessions, by its backend."""
    found = database.ask("SELECT pid, application_name FROM pg_stat_activity WHERE datname = current_database()")
    return {pid: name for pid, name in found if name.startswith("paceline:") and name.endswith(host)}


def spent(
    place: Place, database: Database, who: str, service: Service, host: str, others: float
) -> Generator[Row, None, float]:
    """What a host spends while idle; its transactions are all that happen, less the `others` a second."""
    seconds = place.sizes.idle
    if seconds > 5:
        time.sleep(_LATE)  # what the boot did is told by then
    parent = service.supervised.parent
    children = {child.pid for child in parent.descendants}
    held = sessions(database, host)
    server = {each.pid for each in server_processes(database.connection.info.backend_pid) or []}
    before = processor_seconds({parent.pid, *children, *server})
    transactions = database.transactions()
    time.sleep(seconds)
    rate = (database.transactions() - transactions) / seconds - others
    after = processor_seconds(before)

    def share(pids: Iterable[int]) -> float:
        """Per cent of one processor."""
        return 100 * sum(after[pid] - before[pid] for pid in pids if pid in before) / seconds

    yield row("idle", f"transactions/s, {who}", rate, reach=below(3.0), note=f"of {seconds:g} s")
    yield row(
        "idle",
        f"% of one processor, {who}",
        share({parent.pid, *children, *held}),
        reach=below(0.5),
        note=f"parent {share([parent.pid]):.3f}, children {share(children):.3f}, "
        + (f"its backends {share(held):.3f}" if server else "the server is elsewhere")
        + f"; the rest of the server {share(server - set(held)):.3f}",
    )
    held = sessions(database, host)
    parts = sum("paceline:parent/" in name for name in held.values())
    reach = at_most(place.sizes.queues + 3)
    note = f"{parts} of the parent, and one that its first sweep opens"
    yield row("idle", f"connections, {who}", len(held) + 1, reach=reach, note=note)
    return rate


def memory(place: Place, series: dict[str, Any]) -> Iterator[Row]:
    queues = QUEUES[: place.sizes.queues]
    with place.database() as database, place.service(database, *queues) as service:
        at_boot = of_children(service)
        yield row(
            "memory",
            "MB PSS of a child at boot",
            mean(at_boot.values()),
            reach=at_most(4.0),
            note=f"median {median(at_boot.values()):.2f}, largest {max(at_boot.values()):.2f}",
        )
        yield row("memory", "MB PSS of the parent at boot", pss(service.pid), reach=below(30.0))
        done = 0
        for jobs in place.sizes.memory:
            database.fill(jobs - done, *queues, name=NOTHING)
            service.wait_finished(jobs * len(queues))
            done = jobs
            grown = mean(of_children(service).values()) - mean(at_boot.values())
            yield row("memory", f"MB PSS more of a child after {jobs:,} jobs", grown, reach=below(1.0))
        yield row("memory", f"MB PSS of the parent after {done:,} jobs each", pss(service.pid), reach=below(30.0))
        database.fill(1, *queues, name=POOL)
        service.wait_finished((done + 1) * len(queues))
        pooled = mean(of_children(service).values()) - mean(at_boot.values()) - grown
        yield row("memory", "MB PSS more with the pool open", pooled, note="its threads and its connection")
    series["memory"] = sorted(at_boot.values())


def of_children(service: Service) -> dict[int, float]:
    pids = [service.board.pid(slot) for slot in range(service.board.slots)]
    return {pid: pss(pid) for pid in pids}
