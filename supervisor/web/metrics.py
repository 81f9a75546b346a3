"""The metrics: what the scoreboard counts, and what the database tells of rows that wait."""

from collections.abc import Iterator
from itertools import accumulate

import psycopg
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from supervisor import db, view
from supervisor.scoreboard import BUCKETS, Doing, Histogram, Scoreboard, Slot
from supervisor.sql import statement
from supervisor.status import FINAL

_LEASED = (Doing.SETTLING, Doing.IDLE, Doing.WORKING, Doing.FINALIZING, Doing.RESTING, Doing.PAUSED)
_LIMIT_MS = 5_000  # for the count of pending rows


class Metrics(Collector):
    def __init__(self, board: Scoreboard, url: str) -> None:
        self._board, self._url = board, url

    def collect(self) -> Iterator[Metric]:
        header = self._board.header
        slots = [(slot.queue.decode(), slot, view.of_slot(slot)) for slot in self._board.slots()]
        yield from _jobs(slots)
        yield from _processes(slots)
        yield GaugeMetricFamily("paceline_listening", "1 while LISTEN stands", float(bool(header.listening_since)))
        yield CounterMetricFamily("paceline_sweeps", "Sweeps of stale rows", float(header.sweeps))
        yield CounterMetricFamily("paceline_swept_jobs", "Rows that sweeps have ended", float(header.swept))
        yield from self._rows()

    def _rows(self) -> Iterator[Metric]:
        """Of the whole database, whoever serves the queues; nothing but `up` while it is out of reach."""
        up = GaugeMetricFamily("paceline_database_up", "1 if the database answers")
        pending = GaugeMetricFamily("paceline_pending_jobs", "Rows that wait", labels=["queue"])
        oldest = GaugeMetricFamily("paceline_oldest_pending_seconds", "Age of the oldest", labels=["queue"])
        try:
            with db.connect(self._url, db.session_name("command", "web", "")) as connection:
                connection.execute(f"SET statement_timeout = {_LIMIT_MS}")
                for queue, count, seconds in connection.execute(statement("pending")):
                    pending.add_metric([queue], count)
                    oldest.add_metric([queue], seconds)
            up.add_metric([], 1)
        except psycopg.Error:
            up.add_metric([], 0)
        yield from (up, pending, oldest)


_Slots = list[tuple[str, Slot, view.QueueView]]


def _jobs(slots: _Slots) -> Iterator[Metric]:
    jobs = CounterMetricFamily("paceline_jobs", "Jobs ended on this host", labels=["queue", "outcome"])
    latency = HistogramMetricFamily("paceline_latency_seconds", "From enqueue to claim", labels=["queue"])
    duration = HistogramMetricFamily("paceline_duration_seconds", "Of handlers", labels=["queue"])
    for queue, slot, _ in slots:
        for outcome, count in zip(FINAL, slot.child.outcomes, strict=True):
            jobs.add_metric([queue, outcome], count)
        for family, histogram in ((latency, slot.child.latency), (duration, slot.child.duration)):
            family.add_metric([queue], _buckets(histogram), histogram.sum)
    yield from (jobs, latency, duration)


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    names = [f"{bound:g}" if bound < BUCKETS[-1] else "+Inf" for bound in BUCKETS]
    return list(zip(names, map(float, accumulate(histogram.counts)), strict=True))


def _processes(slots: _Slots) -> Iterator[Metric]:
    deaths = CounterMetricFamily("paceline_deaths", "Processes that died", labels=["queue"])
    starts = CounterMetricFamily("paceline_starts", "Processes started", labels=["queue"])
    works = GaugeMetricFamily("paceline_queue_up", "1 if worked, or waiting as it should", labels=["queue"])
    leases = GaugeMetricFamily("paceline_lease_held", "1 if this host works the queue", labels=["queue"])
    paused = GaugeMetricFamily("paceline_paused", "1 while paused", labels=["queue"])
    for queue, slot, seen in slots:
        doing = Doing(slot.child.doing)
        deaths.add_metric([queue], slot.parent.died)
        starts.add_metric([queue], slot.parent.starts)
        works.add_metric([queue], seen.works)
        leases.add_metric([queue], doing in _LEASED)
        paused.add_metric([queue], doing is Doing.PAUSED)
    yield from (deaths, starts, works, leases, paused)
