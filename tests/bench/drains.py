"""drain-1, drain-40, horizon, history: how fast pending jobs are worked, against bare loops on the same table."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from supervisor.db import connect
from tests.bench import floor
from tests.bench.place import Database, Place
from tests.bench.processes import Service
from tests.bench.registry import NOTHING, QUEUES
from tests.bench.table import Row, at_least, at_most, compared, row

QUEUE, BARE = QUEUES[0], "bare"  # no worker has the queue `bare`


def ours(database: Database, service: Service, jobs: int, *queues: str) -> float:
    """Jobs per second of the service, from its first claim to its last end."""
    before = service.finished()
    database.fill(jobs, *queues)
    service.wait_finished(before + jobs * len(queues))
    return database.rate(*queues)


def bare(database: Database, jobs: int) -> float:
    """The same of one bare loop."""
    database.fill(jobs, BARE)
    with connect(database.url, "floor") as connection:
        floor.work(connection, floor.ids(connection, BARE))
    return database.rate(BARE)


def drain_1(place: Place, series: dict[str, Any]) -> Iterator[Row]:
    jobs, pairs = place.sizes.jobs, []
    with place.database() as database:
        with place.service(database, QUEUE) as service:
            for _ in range(place.sizes.rounds):
                database.empty()
                loop = bare(database, jobs)
                database.empty()
                pairs.append((ours(database, service, jobs, QUEUE), loop))
        yield compared("drain-1", "jobs/s, one queue", pairs, at_least(0.90))
        yield row(
            "drain-1",
            "transactions per job",
            transactions_per_job(place, database),
            reach=at_most(1.05),
            note="a boot and a drain of the service among them",
        )
    series["drain-1"] = pairs


def transactions_per_job(place: Place, database: Database) -> float:
    """Counted over the whole life of a service, since a session's are all told only when it has ended."""
    database.empty()
    before = database.transactions()
    with place.service(database, QUEUE) as service:
        ours(database, service, place.sizes.jobs, QUEUE)
    return (database.transactions() - before) / place.sizes.jobs


def drain_40(place: Place, series: dict[str, Any]) -> Iterator[Row]:
    queues, jobs, pairs = QUEUES[: place.sizes.queues], place.sizes.jobs_per_queue, []
    with place.database() as database:
        for _ in range(place.sizes.rounds):
            database.empty()
            floors = floor.Floors(database.url, queues)
            database.fill(jobs, *queues)
            floors.run()
            loops = database.rate(*queues)
            database.empty()
            with place.service(database, *queues) as service:
                pairs.append((ours(database, service, jobs, *queues), loops))
    yield compared("drain-40", f"jobs/s, {len(queues)} queues together", pairs, at_least(0.85))
    series["drain-40"] = pairs


def horizon(place: Place, series: dict[str, Any]) -> Iterator[Row]:
    """A snapshot that stays open keeps every row version of the drain from being removed."""
    with place.database() as database, place.service(database, QUEUE) as service:
        shares = {}
        for held in (False, True):
            database.empty()
            with connect(database.url, "snapshot") as reader:
                if held:
                    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                    reader.execute("SELECT 1 FROM jobs LIMIT 1")
                ours(database, service, place.sizes.horizon, QUEUE)
            shares[held], series[f"horizon {'with' if held else 'without'} a snapshot"] = last_to_first(place, database)
        yield row(
            "horizon",
            f"last/first {place.sizes.horizon_edge} of {place.sizes.horizon} jobs",
            shares[True],
            floor=shares[False],
            reach=at_least(0.90),
            note="floor: the same with no snapshot open",
        )


def last_to_first(place: Place, database: Database) -> tuple[float, list[float]]:
    """The rate of the last jobs to that of the first; and the rates of ten parts, in order."""
    ends = [
        float(end)
        for (end,) in database.ask("SELECT extract(epoch FROM finished_at)::float8 FROM jobs ORDER BY finished_at")
    ]
    edge = place.sizes.horizon_edge
    first, last = ends[edge - 1] - ends[0], ends[-1] - ends[-edge]
    part = len(ends) // 10
    return first / last, [part / (ends[n + part - 1] - ends[n]) for n in range(0, part * 10, part)]


def history(place: Place, series: dict[str, Any]) -> Iterator[Row]:
    """Finished rows that nobody has cleaned away, against none: two databases, drained in turn."""
    sizes = place.sizes
    for rows in sizes.history:
        with ExitStack() as stack:
            pasts = []
            for past in (0, rows):
                database = stack.enter_context(place.database())
                add_history(database, past)
                pasts.append((database, stack.enter_context(place.service(database, QUEUE))))
            pairs = []
            for number in range(sizes.history_rounds):
                rates = {}
                for which in (0, 1) if number % 2 else (1, 0):
                    database, service = pasts[which]
                    rates[which] = drained(database, service, sizes.history_jobs)
                pairs.append((rates[1], rates[0]))
        yield compared("history", f"jobs/s, {rows:,} finished rows / none", pairs, at_least(0.97))


def add_history(database: Database, rows: int) -> None:
    """Jobs of forty queues over the last thirty days, vacuumed as a living table's are.

    They are of the size of the jobs that follow. Behind larger rows, smaller ones go where a page has room for just
    one more: each dirties a page of its own, whose image goes to the WAL (2.7 images a job, and 0.90 of the speed,
    until the gaps are filled). That is any table's after a change of its rows' size, and nothing of the history's.
    """
    database.ask(
        "INSERT INTO jobs (queue, name, status, created_at, started_at, finished_at)"
        " SELECT 'q' || lpad((number %% 40)::text, 2, '0'), %s, 'ok', time, time, time"
        " FROM generate_series(1, %s) AS number,"
        " LATERAL (SELECT now() - interval '30 days' * (1 - number / %s::float8)) AS past(time)",
        NOTHING,
        rows,
        max(rows, 1),
    )
    database.ask("VACUUM (ANALYZE) jobs")
    database.ask("CHECKPOINT")


def drained(database: Database, service: Service, jobs: int) -> float:
    """Jobs per second of new jobs, behind whatever the table has already."""
    [(last,)] = database.ask("SELECT coalesce(max(id), 0) FROM jobs")
    before = service.finished()
    database.fill(jobs, QUEUE)
    service.wait_finished(before + jobs)
    [(seconds,)] = database.ask(
        "SELECT extract(epoch FROM max(finished_at) - min(started_at))::float8 FROM jobs WHERE id > %s", last
    )
    return jobs / float(seconds)
