"""The floors: the least that a queue can do with the same statements, with no engine around them.

A queue that never repeats a job needs one durable commit for each: it ends one job and claims the next.
"""

import multiprocessing
import select
import time
from collections.abc import Callable
from typing import Any

import psycopg

from supervisor.db import connect
from supervisor.sql import statement

_fork = multiprocessing.get_context("fork")


def ids(connection: psycopg.Connection[Any], queue: str) -> list[int]:
    rows = connection.execute("SELECT id FROM jobs WHERE queue = %s AND status = 'pending' ORDER BY id", [queue])
    return [id for (id,) in rows]


def work(connection: psycopg.Connection[Any], pending: list[int]) -> None:
    """Drain these jobs: a bare psycopg loop, one durable commit a job."""
    text = statement("finalize_and_claim")
    previous = 0
    for id in pending:
        connection.execute(text, {"id": previous, "status": "ok", "next": id}).fetchone()
        previous = id
    connection.execute(statement("finalize"), {"id": previous, "status": "ok"})


class Floors:
    """One bare process for each queue; each drains its own when let go."""

    def __init__(self, url: str, queues: list[str]) -> None:
        self._gate = _fork.Barrier(len(queues) + 1)
        self._processes = [_fork.Process(target=self._drain, args=(url, queue)) for queue in queues]
        for each in self._processes:
            each.start()

    def _drain(self, url: str, queue: str) -> None:
        connection = connect(url, "floor")
        self._gate.wait(60)  # the rows are there from here on
        pending = ids(connection, queue)
        self._gate.wait(60)
        work(connection, pending)

    def run(self) -> None:
        """Let them go, and wait until all are done."""
        self._gate.wait(60)
        self._gate.wait(60)
        for each in self._processes:
            each.join()
            if each.exitcode:
                raise SystemExit(f"a floor process failed: exit code {each.exitcode}")


class Ear:
    """One process that listens, and on each notification claims the next row and says so: the floor of a wake.

    `seen(args)` runs in it as soon as the claim is answered; the row is ended after that, as a job's is.
    """

    def __init__(self, url: str, queue: str, jobs: int, seen: Callable[[str], float]) -> None:
        self._answers, answers = _fork.Pipe(duplex=False)
        self._process = _fork.Process(target=self._listen, args=(url, queue, jobs, seen, answers))
        self._process.start()
        self._answers.recv()  # it listens

    @staticmethod
    def _listen(url: str, queue: str, jobs: int, seen: Callable[[str], float], answers: Any) -> None:
        connection = connect(url, "floor")
        connection.execute("LISTEN jobs")
        heard: list[str] = []  # with an answer to a statement, or between them
        connection.add_notify_handler(lambda notify: heard.append(notify.payload))
        answers.send("listening")
        taken: list[float] = []
        claim, finalize = statement("claim"), statement("finalize")
        while len(taken) < jobs:
            if not heard:
                select.select([connection.fileno()], [], [])
                connection.pgconn.consume_input()
                while notify := connection.pgconn.notifies():
                    heard.append(notify.extra.decode())
            while heard:
                if heard.pop(0) == queue:
                    id = len(taken) + 1  # the table is new, and its writer the only one
                    row = connection.execute(claim, {"id": id}).fetchone()
                    assert row is not None, f"no row {id}"
                    taken.append(seen(row[2]))
                    connection.execute(finalize, {"id": id, "status": "ok"})
        answers.send(taken)

    def taken(self) -> list[float]:
        """What `seen` has answered, once all jobs are done."""
        if not self._answers.poll(60):
            self._process.kill()
            raise SystemExit("the floor's ear has missed a notification")
        found: list[float] = self._answers.recv()
        self._process.join()
        return found


def together(writers: int, work: Callable[[psycopg.Connection[Any]], None], url: str) -> float:
    """Seconds in which so many processes, each with its own connection, do `work` side by side."""
    gate = _fork.Barrier(writers + 1)

    def run() -> None:
        connection = connect(url, "writer")
        gate.wait(60)
        work(connection)

    processes = [_fork.Process(target=run) for _ in range(writers)]
    for each in processes:
        each.start()
    gate.wait(60)
    began = time.monotonic()
    for each in processes:
        each.join()
        if each.exitcode:
            raise SystemExit(f"a writer failed: exit code {each.exitcode}")
    return time.monotonic() - began
