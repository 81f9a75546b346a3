"""What a queue package declares, and what its handlers are given: Worker, Job, Context. Frozen data."""

import functools
import inspect
import re
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

# A handler is called with (Context, args) and returns a status text, or an awaitable of one.
Handler = Callable[..., Any]
# throttle(status, error, elapsed) -> seconds to rest after a job; a pure function. `error` is what the
# handler raised; None also where the job's end is read from its row, after a restart.
Throttle = Callable[[str, BaseException | None, float], float]


def per_minute(jobs: float, backoff: Mapping[str, float] | None = None) -> Throttle:
    """A throttle for at most `jobs` a minute, begin to begin: a job rests what it has left of its share.

    `backoff` has the seconds to rest at least after a status that begins with its key: `{"err: HTTP 5": 10.0}`.
    What the engine rests for by itself (a refused token, a rate limit) comes here only when read from its row.
    """
    if not 0 < jobs < float("inf"):
        raise ValueError(f"per_minute({jobs}): a number of jobs, more than 0")
    share, table = 60.0 / jobs, dict(backoff or {})

    def throttle(status: str, error: BaseException | None, elapsed: float) -> float:
        return max([0.0, share - elapsed, *(rest for prefix, rest in table.items() if status.startswith(prefix))])

    return throttle


QUEUE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")  # it stands in titles, payloads and 63-byte session names


@dataclass(frozen=True, slots=True)
class Job:
    """One row of `jobs`, as its handler sees it."""

    id: int
    queue: str
    name: str
    created_at: datetime  # UTC
    callsite: str | None


# Seconds on CLOCK_BOOTTIME: monotonic, counted through suspend, the same in every process of this host.
boottime = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Context:
    """A job and its deadline, the handler's first argument."""

    job: Job
    deadline: float  # on boottime()

    def remaining(self) -> float:
        """Seconds until the deadline, 0 when it has passed: for the time-outs of calls that the handler makes."""
        return max(0.0, self.deadline - boottime())


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One queue: its handlers by job name, and how they are run. Raises ValueError for what cannot work."""

    queue: str
    handlers: Mapping[str, Handler]
    throttle: Throttle | None = None
    job_timeout: float = 300  # seconds
    poll_interval: float = 30  # seconds
    dedupe: AbstractSet[str] = field(default_factory=frozenset)  # needs `paceline migrate` before the deploy
    max_jobs: int | None = None  # its process is replaced, between jobs, after so many
    max_rss: int | None = None  # bytes: or once its resident memory has grown by more than this since it was ready

    def __post_init__(self) -> None:
        if not QUEUE_NAME.fullmatch(self.queue) or self.queue == "parent":
            raise ValueError(f"queue name {self.queue!r}: letters, digits and _ . - only, 40 at most, and not 'parent'")
        if not self.handlers:
            raise ValueError(f"queue {self.queue}: no handlers")
        for limit in ("job_timeout", "poll_interval"):
            if not 0 < getattr(self, limit) < float("inf"):
                raise ValueError(f"queue {self.queue}: {limit} must be more than 0 seconds")
        for cap in ("max_jobs", "max_rss"):
            if (value := getattr(self, cap)) is not None and value < 1:
                raise ValueError(f"queue {self.queue}: {cap} must be 1 or more, or None for no limit")
        for name, handler in self.handlers.items():
            if not 0 < len(name.encode()) <= 200:
                raise ValueError(f"queue {self.queue}: job name {name[:50]!r}... must have 1 to 200 bytes")
            try:
                inspect.signature(handler).bind(None, None)
            except TypeError as error:
                raise ValueError(f"handler of {name} must take (ctx, args): {error}") from None
        if unknown := set(self.dedupe) - set(self.handlers):
            raise ValueError(f"queue {self.queue}: dedupe names no handler of it: {', '.join(sorted(unknown))}")
        object.__setattr__(self, "handlers", MappingProxyType(dict(self.handlers)))
        object.__setattr__(self, "dedupe", frozenset(self.dedupe))
