"""Handlers that take their process along."""

import os
import resource
import signal
from typing import Any

from supervisor import DB, Context, Worker
from tests.support.queues.settings import POLL_INTERVAL


def new_worker(db: DB) -> Worker:
    return Worker(
        queue="crash",
        handlers={
            "crash.Ok": ok,
            "crash.Segv": segv,
            "crash.Kill": kill,
            "crash.Term": term,
            "crash.Exit": leave,
            "crash.Abort": abort,
        },
        poll_interval=POLL_INTERVAL,
    )


def ok(ctx: Context, args: dict[str, Any]) -> str:
    return "ok"


def segv(ctx: Context, args: dict[str, Any]) -> str:
    _leave_no_core()
    os.kill(os.getpid(), signal.SIGSEGV)
    return "survived SIGSEGV"


def kill(ctx: Context, args: dict[str, Any]) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "survived SIGKILL"


def term(ctx: Context, args: dict[str, Any]) -> str:
    """What an operator's `kill` of this child is: the job finishes, and the child is replaced."""
    os.kill(os.getpid(), signal.SIGTERM)
    return "ok"


def leave(ctx: Context, args: dict[str, Any]) -> str:
    os._exit(3)


def abort(ctx: Context, args: dict[str, Any]) -> str:
    _leave_no_core()
    os.abort()


def _leave_no_core() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
