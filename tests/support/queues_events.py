"""A registry of its own for the tests of events: a handler that knows secrets, and one that raises an old error."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import urllib3

from supervisor import DB, Context, Scheduled, Worker

SECRET = "TEST_SECRET"  # the environment variable that holds it
VENDOR = "TEST_VENDOR"  # the URL of an HTTP server that answers something

_FAULT = RuntimeError("always the same object")


def new_worker(db: DB) -> Worker:
    return Worker(
        queue="secrets",
        handlers={"secrets.Raise": raising, "secrets.Exit": leave, "secrets.RaiseAgain": raising_again},
    )


def raising(ctx: Context, args: dict[str, Any]) -> str:
    """The secret is in a local variable, a request's header and query, a program's environment and args."""
    token = os.environ[SECRET]
    headers = {"Authorization": f"Bearer {token}"}
    answer = urllib3.request("GET", f"{os.environ[VENDOR]}?token={token}", headers=headers, retries=False)
    subprocess.run([sys.executable, "-c", "", token], env={**os.environ, **headers}, check=True)
    raise RuntimeError(f"refused with HTTP {answer.status}")


def leave(ctx: Context, args: dict[str, Any]) -> str:
    token = os.environ[SECRET]
    os._exit(3 if token else 4)


def raising_again(ctx: Context, args: dict[str, Any]) -> str:
    raise _FAULT


registry: list[Callable[[DB], Worker]] = [new_worker]

schedule: list[Scheduled] = []
