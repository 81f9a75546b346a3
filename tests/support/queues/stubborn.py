"""Handlers that do not end by themselves, each deaf in its own way; their deadline is after one second."""

import ctypes
import os
import re
import signal
import socket
import subprocess
import time
from functools import partial
from typing import Any

from supervisor import DB, Context, Worker
from tests.support.queues.settings import POLL_INTERVAL

JOB_TIMEOUT = 1.0


def new_worker(db: DB) -> Worker:
    return Worker(
        queue="stubborn",
        handlers={
            "stubborn.Ok": ok,
            # These end at the deadline: JobTimeout gets through to them.
            "stubborn.Sleep": sleep,
            "stubborn.Regex": regex,
            "stubborn.Read": read,
            "stubborn.Query": partial(query, db=db),
            "stubborn.Usleep": usleep,
            "stubborn.Subprocess": deaf_subprocess,
            # These only at deadline + grace, by the kernel.
            "stubborn.Spin": spin,
            "stubborn.Swallow": swallow,
            "stubborn.Ignore": ignore,
            "stubborn.Block": block,
            "stubborn.Stop": stop,
        },
        job_timeout=JOB_TIMEOUT,
        poll_interval=POLL_INTERVAL,
    )


def ok(ctx: Context, args: dict[str, Any]) -> str:
    return "ok"


def sleep(ctx: Context, args: dict[str, Any]) -> str:
    time.sleep(86_400)
    return "slept a day"


def regex(ctx: Context, args: dict[str, Any]) -> str:
    """Doubles its time with each letter; in C, the GIL held, but re looks for signals now and then."""
    re.fullmatch(r"(a+)+", "a" * 200 + "b")
    return "matched"


def read(ctx: Context, args: dict[str, Any]) -> str:
    """A server that accepted and never answers."""
    near, far = socket.socketpair()
    with near, far:
        return f"read {near.recv(1)!r}"


def query(ctx: Context, args: dict[str, Any], *, db: DB) -> str:
    with db.connection() as connection:
        connection.execute("SELECT pg_sleep(86400)")
    return "slept a day"


def usleep(ctx: Context, args: dict[str, Any]) -> str:
    """In C, the GIL held; a signal ends each call, so that Python code runs in between."""
    libc = ctypes.PyDLL(None)
    while True:
        libc.usleep(30_000_000)


def deaf_subprocess(ctx: Context, args: dict[str, Any]) -> str:
    """Waits for a program that ignores SIGTERM and would outlive its group's leader."""
    subprocess.run(["/bin/sh", "-c", "trap '' TERM INT HUP ALRM; while :; do sleep 1; done"], check=True)
    return "outlived it"


def spin(ctx: Context, args: dict[str, Any]) -> str:
    """In C, the GIL held, all the processor's time, never back in Python: a spin lock that is taken twice."""
    libc = ctypes.PyDLL(None)
    lock = ctypes.c_int()
    libc.pthread_spin_init(ctypes.byref(lock), 0)
    libc.pthread_spin_lock(ctypes.byref(lock))
    libc.pthread_spin_lock(ctypes.byref(lock))
    return "took a lock twice"


def swallow(ctx: Context, args: dict[str, Any]) -> str:
    while True:
        try:
            time.sleep(86_400)
        except BaseException:  # noqa: BLE001 - the fault that this is about
            continue


def ignore(ctx: Context, args: dict[str, Any]) -> str:
    for signo in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signo, signal.SIG_IGN)
    time.sleep(86_400)
    return "slept a day"


def block(ctx: Context, args: dict[str, Any]) -> str:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(86_400)
    return "slept a day"


def stop(ctx: Context, args: dict[str, Any]) -> str:
    """A stopped process runs no handler; only SIGKILL ends it."""
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(86_400)
    return "slept a day"
