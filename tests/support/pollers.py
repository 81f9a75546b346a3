"""Pollers of a queue `desk`, in the test's own process: no fork, no parent, no deadline."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC
from typing import Any

import msgspec
import setproctitle

from supervisor import DB, Context, Poller, Worker, fail
from supervisor.child.execution import Claimed
from supervisor.config import Limits

MakePoller = Callable[..., Poller]


class Person(msgspec.Struct):
    name: str


def ok(ctx: Context, args: dict[str, Any]) -> str:
    return "ok"


def greet(ctx: Context, args: Person) -> str:
    return f"hello {args.name}"


async def later(ctx: Context, args: dict[str, Any]) -> str:
    await asyncio.sleep(0)
    return fail("not today")


def facts(ctx: Context, args: dict[str, Any]) -> str:
    assert ctx.job.created_at.tzinfo is UTC
    return f"{ctx.job.id} {ctx.job.queue} {ctx.job.name} {ctx.job.callsite} {0 < ctx.remaining() <= 60}"


def euro(ctx: Context, args: dict[str, Any]) -> str:
    return "5 €"


HANDLERS = {"Ok": ok, "Greet": greet, "Later": later, "Facts": facts, "Euro": euro}


@contextmanager
def pollers(url: str) -> Iterator[MakePoller]:
    """make_poller(url, leased=..., limits=..., **worker); only with the lease may a claim travel with a finalize."""
    with ExitStack() as stack:
        stack.callback(setproctitle.setproctitle, setproctitle.getproctitle())  # work() names its process

        def make(url: str = url, *, leased: bool = False, limits: Limits | None = None, **worker: Any) -> Poller:
            given: dict[str, Any] = {"queue": "desk", "handlers": HANDLERS, "job_timeout": 60}
            desk = Worker(**given | worker)
            made = Poller(desk, DB(url), limits=limits)
            stack.callback(made.session.drop)
            if leased:
                assert made.session.take_lease(0)
            return made

        yield make


def claimed(poller: Poller, job: int) -> Claimed:
    """The claim of a row that is there to be claimed."""
    found = poller.claim(job)
    assert found is not None
    return found
