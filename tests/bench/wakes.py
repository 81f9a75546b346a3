"""wake and enqueue: from a writer to a handler's first line, and what the trigger that makes it costs writers."""

import json
import random
import time
from collections.abc import Iterator
from typing import Any

import psycopg

from supervisor import insert, insert_many
from supervisor.db import connect
from supervisor.sql import statement
from tests.bench import floor
from tests.bench.place import Database, Place
from tests.bench.registry import NOTHING, QUEUES, STAMP
from tests.bench.table import Row, below, compared, quantile, row

QUEUE, BARE = QUEUES[0], "bare"


def enqueue_now_and_then(connection: psycopg.Connection[Any], queue: str, jobs: int) -> None:
    """`jobs` rows, each 10 to 50 ms after the one before, each with the moment just before it was sent."""
    text = statement("insert")
    for _ in range(jobs):
        time.sleep(random.uniform(0.010, 0.050))
        given = {"queue": queue, "name": STAMP, "callsite": None}
        connection.execute(text, given | {"args": json.dumps({"sent": time.monotonic_ns()})})


def since_sent(args: str) -> float:
    now = time.monotonic_ns()
    return float(now - json.loads(args)["sent"]) / 1e9


def wake(place: Place, series: dict[str, Any]) -> Iterator[Row]:
    jobs = place.sizes.wakes // place.sizes.wake_blocks
    ours: list[float] = []
    floors: list[float] = []
    with place.database() as database:
        for _ in range(place.sizes.wake_blocks):
            database.empty()
            ear = floor.Ear(database.url, BARE, jobs, since_sent)
            enqueue_now_and_then(database.connection, BARE, jobs)
            floors += ear.taken()
            database.empty()
            place.output.write_text("")
            with place.service(database, QUEUE) as service:
                enqueue_now_and_then(database.connection, QUEUE, jobs)
                service.wait_finished(jobs)
            ours += map(float, place.output.read_text().split())
    series["wake"] = {"ours": ours, "floor": floors}
    middle = quantile(ours, 0.5), quantile(floors, 0.5)
    yield row("wake", "p50, ms", middle[0] * 1e3, floor=middle[1] * 1e3, ratio=middle[0] / middle[1], reach=below(1.3))
    for share in (0.95, 0.99):
        found, least = quantile(ours, share), quantile(floors, share)
        reach = below(3.0) if share == 0.99 else None
        yield row(
            "wake",
            f"p{share * 100:.0f}, ms" + (" (ratio: to its own p50)" if reach else ""),
            found * 1e3,
            floor=least * 1e3,
            ratio=found / (middle[0] if reach else least),
            reach=reach,
            note=f"the floor's to its own p50: {least / middle[1]:.2f}" if reach else "",
        )


def enqueue(place: Place, series: dict[str, Any]) -> Iterator[Row]:
    """Rows per second; the floor is the same with the trigger disabled."""
    sizes = place.sizes

    def single(database: Database) -> float:
        began = time.perf_counter()
        for _ in range(sizes.inserts):
            insert(database.connection, QUEUE, NOTHING, {})
        return sizes.inserts / (time.perf_counter() - began)

    def many(database: Database) -> float:
        inputs = [(QUEUE, NOTHING, {"number": number}) for number in range(sizes.per_call)]
        began = time.perf_counter()
        for _ in range(sizes.calls):
            insert_many(database.connection, inputs)
        return sizes.calls * sizes.per_call / (time.perf_counter() - began)

    def concurrent(database: Database) -> float:
        each = max(1, 4 * sizes.inserts // sizes.writers)

        def write(connection: psycopg.Connection[Any]) -> None:
            for _ in range(each):
                insert(connection, QUEUE, NOTHING, {})

        return each * sizes.writers / floor.together(sizes.writers, write, database.url)

    ways = {
        "single": single,
        f"{sizes.per_call} a call": many,
        f"{sizes.writers} writers": concurrent,
    }
    with place.database() as database, connect(database.url, "ear") as ear:
        ear.execute("LISTEN jobs")  # or the server would have nobody to tell
        for name, way in ways.items():
            pairs = []
            for _ in range(sizes.rounds):
                rates = {}
                for trigger in ("DISABLE", "ENABLE"):
                    database.empty()
                    database.ask(f"ALTER TABLE jobs {trigger} TRIGGER jobs_notify")
                    rates[trigger] = way(database)
                pairs.append((rates["ENABLE"], rates["DISABLE"]))
            yield compared("enqueue", f"rows/s, {name}", pairs, note="floor: without the trigger")
