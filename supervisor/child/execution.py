"""Running one claimed job: its handler, its args, its deadline, and what its end means.

Knows nothing of the database: dispatch() takes a Claimed and gives a Result.
"""

import asyncio
import math
import os
from collections.abc import Callable
from types import CoroutineType
from typing import Any, NamedTuple

from supervisor import status
from supervisor.args import decoder_for
from supervisor.child.deadline import Deadline
from supervisor.errors import JobTimeout, RateLimited, UnexpectedStatus
from supervisor.worker import Context, Handler, Job, Throttle, Worker, boottime

PAUSE = 3600.0  # seconds for which a refused token pauses its queue
_LONGEST_REST = 365 * 86_400.0  # seconds: "for ever"
_BROKEN_THROTTLE = 60.0  # seconds: a throttle that raises must not become no throttle


class Claimed(NamedTuple):
    """A row that this process has claimed and must end."""

    job: Job
    args: str  # JSON
    latency: float  # seconds from its creation to its claim
    deadline: float  # on boottime()


class Result(NamedTuple):
    status: str  # storable
    error: BaseException | None
    elapsed: float  # seconds that the handler took
    timed_out: bool = False


class Rest(NamedTuple):
    """What follows a job: seconds without a claim, and why."""

    seconds: float
    reason: str = ""
    paused: bool = False


NO_REST = Rest(0.0)


class Execution:
    """Runs the jobs of one worker, one after the other, in this process."""

    def __init__(self, worker: Worker, deadline: Deadline) -> None:
        self.worker, self.deadline = worker, deadline
        self._pid = os.getpid()
        self._decoders: dict[str, Callable[[str], Any]] = {}  # by job name, those that were needed

    def dispatch(self, claimed: Claimed) -> Result:
        """Run the handler under its deadline. Never raises: every way out of a handler is a Result.

        The deadline's timers stay armed: the next job's may be the same.
        """
        handler = self.worker.handlers.get(claimed.job.name)
        if handler is None:
            unknown = LookupError(f'unknown job "{claimed.job.name}" for queue {self.worker.queue}')
            return Result(status.storable(status.of_error(unknown)), unknown, 0.0)
        began = boottime()
        answer: object = None
        error: BaseException | None = None
        try:
            try:
                self.deadline.in_handler = True
                self.deadline.arm(claimed.deadline)  # which may have passed: the alarm comes at once
                decode = self._decoders.get(claimed.job.name) or self._decoder(claimed.job.name, handler)
                answer = handler(Context(claimed.job, claimed.deadline), decode(claimed.args))
                if type(answer) is CoroutineType:
                    answer = asyncio.run(answer)
            finally:
                # An alarm on this line raises to the clause below; after it, nowhere.
                self.deadline.in_handler = False
        except BaseException as raised:  # noqa: BLE001 - the edge: JobTimeout, SystemExit and all
            error = raised
        if os.getpid() != self._pid:
            os._exit(0)  # a fork that the handler made and that returned from it: it must not go on as a second poller
        return self._result(answer, error, boottime() - began)

    def _decoder(self, name: str, handler: Handler) -> Callable[[str], Any]:
        return self._decoders.setdefault(name, decoder_for(handler))

    def _result(self, answer: object, error: BaseException | None, elapsed: float) -> Result:
        if self.deadline.fired:
            text = status.timed_out(self.worker.job_timeout)
            return Result(text, error or JobTimeout("the handler swallowed its deadline"), elapsed, True)
        if error is not None:
            return Result(status.storable(status.of_error(error)), error, elapsed)
        text = status.of_answer(answer)
        if text is not answer:  # which is no status of a handler's
            error = ValueError(text.removeprefix("err: "))
        return Result(status.storable(text), error, elapsed)


def rest_after(throttle: Throttle | None, text: str, error: BaseException | None, elapsed: float) -> Rest:
    """What a job's end asks of its queue. A throttle that raises, or answers no number, gives a minute's rest."""
    if isinstance(error, UnexpectedStatus) and error.code in (401, 403):
        return Rest(PAUSE, status.of_error(error).removeprefix("err: "), paused=True)
    if isinstance(error, RateLimited):
        return Rest(_bounded(error.retry_after), "rate limited")
    if throttle is None:
        return NO_REST
    try:
        return Rest(_bounded(throttle(text, error, elapsed)), "throttle")
    except Exception as broken:  # noqa: BLE001 - the edge: a throttle is the user's code
        return Rest(_BROKEN_THROTTLE, f"throttle failed: {status.of_error(broken).removeprefix('err: ')}")


def _bounded(seconds: float) -> float:
    """`seconds` as clocks can hold it. Raises ValueError for what is no number."""
    if math.isnan(seconds):
        raise ValueError("nan seconds")
    return min(max(0.0, float(seconds)), _LONGEST_REST)
