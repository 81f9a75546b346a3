"""A registry of handlers that fill the log; and of quick ones."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from supervisor import DB, Context, Scheduled, Worker
from tests.support.queues import crash, quick, sleeps
from tests.support.queues.settings import POLL_INTERVAL


class Text(msgspec.Struct):
    text: str = "x"


class Lines(msgspec.Struct):
    number: int
    size: int = 100


def new_worker(db: DB) -> Worker:
    return Worker(
        queue="loud",
        handlers={"loud.Log": log, "loud.LogStack": log_stack, "loud.Flags": flags},
        poll_interval=POLL_INTERVAL,
    )


def log(ctx: Context, args: Lines) -> str:
    for number in range(args.number):
        logging.getLogger(__name__).warning("line %d %s", number, args.size * "x")
    return "ok"


def log_stack(ctx: Context, args: Text) -> str:
    try:
        raise ValueError(args.text)
    except ValueError:
        logging.getLogger(__name__).exception("it failed")
    return "ok"


def flags(ctx: Context, args: dict[str, Any]) -> str:
    """Whether standard error, which others share, blocks, and how many descriptors there are."""
    return f"{os.get_blocking(2)} {len(list(Path('/proc/self/fd').iterdir()))}"


registry: list[Callable[[DB], Worker]] = [new_worker, quick.new_worker, sleeps.new_worker, crash.new_worker]
schedule: list[Scheduled] = []
