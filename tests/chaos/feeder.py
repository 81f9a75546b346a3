"""The feeder: enqueues at a steady rate through every outage, and knows for certain what it asked for and what it got.

Its own book, a file of JSON lines appended and fsynced, has a line before each try and one for each answer. A try
that no answer came to may or may not be in the table, which tells at the end; it is never tried again.
"""

import json
import os
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from supervisor import insert, insert_many
from tests.chaos.queues import DEATHS, QUEUES, TIMEOUTS

EVERY = 0.1  # seconds between two tries
SESSION = "chaos feeder"
Job = tuple[str, str, dict[str, Any]]


class Feeder:
    def __init__(self, url: str, book: Path, seed: int) -> None:
        self._url, self._draw = url, random.Random(seed)
        self._book = book.open("ab", buffering=0)
        self._number = 0
        self._connection: psycopg.Connection[Any] | None = None
        self._over = threading.Event()
        self.fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="feeder")
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._book.close()
        if self._connection is not None:
            self._connection.close()
        if self.fault:
            raise self.fault

    def _run(self) -> None:
        try:
            while not self._over.wait(EVERY):
                self._feed()
        except BaseException as error:  # noqa: BLE001 - told by stop()
            self.fault = error

    def _feed(self) -> None:
        queue = self._draw.choice(list(QUEUES))
        how = self._draw.choice((self._one, self._one, self._one, self._many, self._select))
        count = 1 if how == self._one else self._draw.randint(2, 12)
        jobs = [self._job(queue) for _ in range(count)]
        numbers = [args["number"] for _, _, args in jobs]
        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(
                    self._url, autocommit=True, connect_timeout=2, application_name=SESSION
                )
        except psycopg.OperationalError:
            return  # nothing was tried
        self._note({"tried": numbers})
        try:
            ids = how(self._connection, jobs)
        except psycopg.OperationalError:
            self._connection.close()
            return
        self._note({"got": dict(zip(numbers, ids, strict=True))})

    def _job(self, queue: str) -> Job:
        draw, name = self._draw, self._draw.choice(QUEUES[queue])
        self._number += 1
        args: dict[str, Any] = {"number": self._number}
        if name in ("Tens", "Database", "Die"):
            args["seconds"] = round(draw.uniform(0.005, 0.08), 3)
        elif name in ("Slow", "Swallow"):
            args["seconds"] = round(TIMEOUTS[queue] * draw.choice((0.3, 0.5, 1.0, 1.2, 3.0)), 3)
        if name == "Die":
            args["how"] = draw.choice(DEATHS)
        elif name == "Answer":
            args["how"] = draw.choice(("fail", "skip", "plain"))
        elif name == "Raise" and draw.random() < 0.2:
            args |= {"how": "rest", "seconds": round(draw.uniform(0.05, 0.5), 2)}
        return queue, name, args

    def _note(self, line: dict[str, Any]) -> None:
        self._book.write(json.dumps(line).encode() + b"\n")
        os.fsync(self._book.fileno())

    # The ways to enqueue; each answers the ids in order.

    @staticmethod
    def _one(connection: psycopg.Connection[Any], jobs: Sequence[Job]) -> list[int]:
        return [insert(connection, *jobs[0])]

    @staticmethod
    def _many(connection: psycopg.Connection[Any], jobs: Sequence[Job]) -> list[int]:
        return insert_many(connection, jobs)

    @staticmethod
    def _select(connection: psycopg.Connection[Any], jobs: Sequence[Job]) -> list[int]:
        """By plain SQL; the order of RETURNING is told by the number."""
        found = connection.execute(
            "INSERT INTO jobs (queue, name, args) SELECT queue, name, args"
            " FROM unnest(%s::text[], %s::text[], %s::jsonb[]) AS job(queue, name, args)"
            " RETURNING id::bigint, (args ->> 'number')::int",
            ([job[0] for job in jobs], [job[1] for job in jobs], [Jsonb(job[2]) for job in jobs]),
        ).fetchall()
        return [id for id, _ in sorted(found, key=lambda row: row[1])]
