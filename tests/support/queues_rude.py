"""A registry of handlers that are rude in ways which only the next job, or another process, notices."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from supervisor import DB, Context, Scheduled, Worker
from tests.support.queues import quick, rude, sleeps, stubborn
from tests.support.queues.settings import POLL_INTERVAL


class Nap(msgspec.Struct):
    seconds: float = 1.0


def new_worker(db: DB) -> Worker:
    return Worker(
        queue="ruder",
        handlers={
            "ruder.Nap": nap,
            "ruder.LeaveAlarm": leave_alarm,
            "ruder.Terminate": terminate,
            "ruder.Nested": nested,
            "ruder.OwnHandler": own_handler,
            "ruder.CopyReturnsLate": copy_returns_late,
            "ruder.DefaultSignals": default_signals,
            "ruder.Spin": stubborn.spin,
        },
        job_timeout=2,
        poll_interval=POLL_INTERVAL,
    )


def nap(ctx: Context, args: Nap) -> str:
    time.sleep(args.seconds)
    return "ok"


def leave_alarm(ctx: Context, args: Nap) -> str:
    """An alarm clock of its own, which it forgets to stop."""
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, args.seconds)
    return "ok"


def terminate(ctx: Context, args: dict[str, Any]) -> str:
    """A process by multiprocessing, ended as its documentation says."""
    started = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    started.start()
    started.terminate()
    started.join(1)
    return f"exit code {started.exitcode}"


def nested(ctx: Context, args: dict[str, Any]) -> str:
    """A process by multiprocessing that has one of its own, and a pipe to each."""
    fork = multiprocessing.get_context("fork")

    def inner(pipe: Any) -> None:
        pipe.send(6 * 7)

    def outer(pipe: Any) -> None:
        pairs = [fork.Pipe() for _ in range(4)]  # they take the lowest free numbers
        started = [fork.Process(target=inner, args=(far,)) for _, far in pairs]
        for process in started:
            process.start()
        answers = [near.recv() if near.poll(1) else None for near, _ in pairs]
        for process in started:
            process.join(1)
        pipe.send(answers)

    near, far = fork.Pipe()
    started = fork.Process(target=outer, args=(far,))
    started.start()
    answers = near.recv() if near.poll(5) else None
    started.join(1)
    return f"ok {answers}"


def own_handler(ctx: Context, args: dict[str, Any]) -> str:
    """A fork that is to run down at SIGTERM in its own way, set up before the fork as one does."""
    read_end, write_end = os.pipe()

    def leave(signo: int, frame: object) -> None:
        os.write(write_end, b"ran down")
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    if (pid := os.fork()) == 0:
        os.write(write_end, b"up, ")
        while True:  # in short naps: a signal that arrives just before a nap begins is seen after it
            time.sleep(0.01)
    said = os.read(read_end, 100)
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
    os.close(write_end)
    return (said + os.read(read_end, 100)).decode()


def copy_returns_late(ctx: Context, args: Nap) -> str:
    """The copy comes back from the handler while the next job runs."""
    if os.fork() == 0:
        time.sleep(args.seconds)
        return "the copy's answer"
    return "ok"


def default_signals(ctx: Context, args: dict[str, Any]) -> str:
    """As a library does that wants to be left alone."""
    for signo in range(signal.SIGRTMIN, signal.SIGRTMAX + 1):
        signal.signal(signo, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.setswitchinterval(1.0)
    return "ok"


registry: list[Callable[[DB], Worker]] = [new_worker, rude.new_worker, quick.new_worker, sleeps.new_worker]
schedule: list[Scheduled] = []
