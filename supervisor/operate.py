"""What an operator does to a running service, from any host: each command acts on rows, or asks the parents."""

import sys
import time
from argparse import Namespace
from collections.abc import Iterable
from typing import Any

import psycopg

from supervisor import control, lease, status
from supervisor.commands import connect, person
from supervisor.control import Answers
from supervisor.db import asking
from supervisor.errors import PacelineError, UsageError
from supervisor.sql import statement

ASK_ABOVE = 10  # jobs that are retried without a question
_EFFECT = 3.0  # seconds to wait for what was asked to show
_LOOK = 0.05  # seconds

Connection = psycopg.Connection[Any]


def pause(arguments: Namespace) -> int:
    queue = arguments.queue
    with connect(arguments) as connection:
        facts = {"queue": queue, "seconds": arguments.seconds, "reason": arguments.reason, "by": person()}
        [(_, until)] = connection.execute(statement("pause"), facts).fetchall()
        print(f"{queue}: paused {f'until {until}' if until else 'until it is resumed'}")
        control.ask(connection, "pause", queue=queue, by=person())
        _tell_effect(connection, queue)
    return 0


def _tell_effect(connection: Connection, queue: str) -> None:
    """Wait until the queue's process knows of the pause; say what still runs."""
    give_up = time.monotonic() + _EFFECT
    while True:
        answers = control.ask(connection, "status")
        views = [(part.host, view) for part in answers.parts for view in part.queues if view.queue == queue]
        working = [(host, view) for host, view in views if not view.standby]
        if all(view.job_id or view.state.startswith("paused") for _, view in working) or time.monotonic() > give_up:
            break
        time.sleep(_LOOK)
    for host, view in working:
        print(f"{host}: {f'runs job {view.job_id} to its end' if view.job_id else view.state}")
    if not views:
        print("no host serves this queue now")
    _complain_of_silence(answers)


def resume(arguments: Namespace) -> int:
    with connect(arguments) as connection:
        ended = {"queue": arguments.queue, "status": status.skip(f"resumed by {person()}")}
        rows = connection.execute(statement("end_pause"), ended).fetchall()
        answers = control.ask(connection, "resume", queue=arguments.queue, by=person())
    if not rows and not answers.done:
        _complain_of_silence(answers)
        raise PacelineError(f"{arguments.queue} is not paused")
    print(f"{arguments.queue}: resumed")
    _tell(answers)
    return 0


def restart(arguments: Namespace) -> int:
    with connect(arguments) as connection:
        answers = control.ask(connection, "restart", queue=arguments.queue, by=person())
    _tell(answers)
    if not answers.done:
        raise PacelineError(f"no host that answers runs a process for {arguments.queue}")
    return 0


def end(arguments: Namespace) -> int:
    id = arguments.id
    with connect(arguments) as connection:
        queue, now = _job(connection, id)
        if now == status.PENDING:
            raise PacelineError(f"job {id} is pending: `paceline cancel {id}`")
        if now != status.STARTED:
            raise PacelineError(f"job {id} has ended: {now}")
        answers = control.ask(connection, "end", id=id, by=person())
        _tell(answers)
        if not answers.done:
            raise PacelineError(
                f"no host that answers runs job {id}; if its host is dead, see `paceline release {queue}`"
            )
        give_up = time.monotonic() + _EFFECT
        while now == status.STARTED and time.monotonic() < give_up:
            time.sleep(_LOOK)
            _, now = _job(connection, id)
    print(f"job {id}: {now}")
    return 0


def _job(connection: Connection, id: int) -> tuple[str, str]:
    """The queue and status of a job. PacelineError where there is none."""
    row = connection.execute(statement("find_job"), {"id": id}).fetchone()
    if row is None:
        raise PacelineError(f"no job {id}")
    return row[0], row[1]


def cancel(arguments: Namespace) -> int:
    facts = {"ids": arguments.ids, "status": status.skip(f"cancelled by {person()}")}
    with connect(arguments) as connection, connection.transaction():
        found = dict(connection.execute(statement("cancel"), facts).fetchall())
        _refuse_others(arguments.ids, found, "is not pending")
    for id in arguments.ids:
        print(f"{id} {found[id]}")
    return 0


def retry(arguments: Namespace) -> int:
    """New rows for finished jobs: those named, or those of a queue that ended so since then."""
    if bool(arguments.ids) == bool(arguments.queue):
        raise UsageError("retry: give ids, or --queue with --since")
    if arguments.queue and not arguments.since:
        raise UsageError("retry --queue: say --since when, such as --since 1h")
    with connect(arguments) as connection, connection.transaction():
        ids = arguments.ids or _finished(connection, arguments)
        if len(ids) > ASK_ABOVE and arguments.queue:
            _confirm(f"{len(ids)} jobs of {arguments.queue} would be enqueued anew", arguments.yes)
        found = dict(connection.execute(statement("retry"), {"ids": ids}).fetchall())
        _refuse_others(ids, found, "is not a finished job")
    for id in ids:
        print(found[id])
    return 0


def _finished(connection: Connection, arguments: Namespace) -> list[int]:
    query = statement("finished_since").decode().format(outcome=status.OUTCOME_SQL).encode()
    facts = {"queue": arguments.queue, "outcome": arguments.outcome, "seconds": arguments.since}
    return [id for (id,) in connection.execute(query, facts)]


def release(arguments: Namespace) -> int:
    """Interrupt what a dead host has left in a queue, without the wait for its deadline."""
    queue = arguments.queue
    with connect(arguments) as connection:
        ask = asking(connection)
        left = [row.id for row in lease.left_started(ask, queue)]
        if not left:
            raise PacelineError(f"{queue}: no job is started, nothing is left to release")
        answers = control.ask(connection, "status")
        runs = {view.job_id: part.host for part in answers.parts for view in part.queues if view.queue == queue}
        if alive := [f"job {id} runs on {runs[id]}, which answers" for id in left if id in runs]:
            raise PacelineError(f"{alive[0]}: `paceline end` it, or let it end")
        _complain_of_silence(answers)
        named = ", ".join(f"job {id}" for id in left)
        _confirm(
            f"{named} of {queue}: if the host that ran it lives, the queue's next job runs beside it", arguments.yes
        )
        holder = lease.lease_holder(ask, queue)
        if holder and lease.host_of(holder[1]) in answers.silent.values():
            lease.end_session(ask, *holder)
        for id in left:
            if lease.interrupt(ask, id, status.interrupted(f"released by {person()}")):
                print(f"job {id}: interrupted")
    return 0


def _refuse_others(ids: Iterable[int], found: dict[int, Any], why: str) -> None:
    """All or nothing: raised inside the transaction."""
    if others := [str(id) for id in ids if id not in found]:
        raise PacelineError(f"{', '.join(others)} {why}; nothing was changed")


def _confirm(what: str, yes: bool) -> None:
    """Go on only if a person says so. Raises PacelineError."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{what}: say --yes if that is meant")
    if input(f"{what}. Go on? [y/N] ").strip().lower() not in ("y", "yes"):
        raise PacelineError("nothing was changed")


def _tell(answers: Answers) -> None:
    for line in answers.done:
        print(line)
    _complain_of_silence(answers)


def _complain_of_silence(answers: Answers) -> None:
    for host in answers.silent.values():
        print(f"{host}: does not answer", file=sys.stderr)
