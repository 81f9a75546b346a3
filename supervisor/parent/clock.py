"""The clock: in each UTC minute by the server's clock, one job for each schedule entry whose predicate holds.

Once per minute in the whole database, however many hosts, restarts or stepped clocks: the callsite
carries the minute, and a unique index makes it so. After a gap the last ten minutes are caught up.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import psycopg

from supervisor import log
from supervisor.args import encode
from supervisor.parent.helper import Helpers, ParentOutage
from supervisor.parent.session import UNREACHABLE, Session
from supervisor.schedule import Scheduled, callsite

CATCH_UP = timedelta(minutes=10)
_MINUTE = timedelta(minutes=1)
_RETRY = 1.0  # seconds


class _Unreachable(BaseException):
    """The database is not there. A BaseException, so that the edge around an entry's own code lets it pass."""


class Clock:
    def __init__(self, session: Session, schedule: Sequence[Scheduled], helpers: Helpers) -> None:
        self._session, self._schedule = session, schedule
        self._outage = ParentOutage("clock", helpers)
        self._entries = [
            (entry, ParentOutage(f"schedule entry {entry.queue} {entry.name}", helpers)) for entry in schedule
        ]
        self._last: datetime | None = None  # the last minute that is done

    async def run(self) -> None:
        while self._schedule:
            try:
                now = await self.now()
                await self.catch_up(now)
                self._outage.over()
                pause = 60.0 - (now.second + now.microsecond / 1e6)
            except (*UNREACHABLE, _Unreachable) as error:
                self._outage.failed(error)
                pause = _RETRY
            await asyncio.sleep(pause)

    async def now(self) -> datetime:
        [(epoch,)] = await self._session.execute("clock")
        return datetime.fromtimestamp(epoch, UTC)

    async def catch_up(self, now: datetime) -> None:
        """Tick every minute since the last one done, at most ten. Raises what UNREACHABLE lists."""
        this = now.replace(second=0, microsecond=0)
        minute = this - CATCH_UP + _MINUTE
        if self._last is not None and self._last >= minute:
            minute = self._last + _MINUTE
        while minute <= this:
            await self.tick(minute)
            self._last = minute
            minute += _MINUTE

    async def tick(self, minute: datetime) -> None:
        """Enqueue what is due in `minute`. A failing entry is reported once, and does not stop the others."""
        enqueued = 0
        for entry, outage in self._entries:
            try:
                if entry.predicate(minute):
                    enqueued += await self._enqueue(entry, minute, encode(entry.args))
            except Exception as error:  # noqa: BLE001 - the edge: a predicate and its args are the user's code
                outage.failed(error)
            else:
                outage.over()
        if enqueued:
            log.log.info("clock %s: enqueued %d", f"{minute:%Y-%m-%dT%H:%MZ}", enqueued)

    async def _enqueue(self, entry: Scheduled, minute: datetime, args: str) -> int:
        """How many rows that made. Raises _Unreachable, which ends the tick, or the entry's own data error."""
        try:
            rows = await self._session.execute(
                "tick", queue=entry.queue, name=entry.name, args=args, callsite=callsite(minute)
            )
        except (psycopg.DataError, psycopg.IntegrityError):
            raise
        except UNREACHABLE as error:
            raise _Unreachable(str(error)) from error
        return len(rows)
