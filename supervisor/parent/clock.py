"""The clock: in each UTC minute by the server's clock, one job for each schedule entry whose predicate holds.

Once per minute in the whole database, however many hosts, restarts or stepped clocks: the callsite
carries the minute, and a unique index makes it so. After a gap the last ten minutes are caught up.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import psycopg

from supervisor.args import encode
from supervisor.log import log
from supervisor.parent.helper import Helpers, ParentOutage
from supervisor.parent.session import UNREACHABLE, Session
from supervisor.schedule import Scheduled, callsite

CATCH_UP = timedelta(minutes=10)
_MINUTE = timedelta(minutes=1)
_RETRY = 1.0  # seconds


class Clock:
    def __init__(self, session: Session, schedule: Sequence[Scheduled], helpers: Helpers) -> None:
        self._session, self._schedule = session, schedule
        self._outage = ParentOutage("clock", helpers)
        self._entries = [
            (entry, ParentOutage(f"schedule entry {entry.queue} {entry.name}", helpers)) for entry in schedule
        ]
        self._done: datetime | None = None  # this minute, and all before it that count, are enqueued

    async def run(self) -> None:
        while self._schedule:
            try:
                now = await self.now()
                await self.catch_up(now)
                self._outage.over()
                pause = 60.0 - (now.second + now.microsecond / 1e6)
            except UNREACHABLE as error:
                self._outage.failed(error)
                pause = _RETRY
            await asyncio.sleep(pause)

    async def now(self) -> datetime:
        [(epoch,)] = await self._session.execute("clock")
        return datetime.fromtimestamp(epoch, UTC)

    async def catch_up(self, now: datetime) -> None:
        """Tick every minute since the last one done, at most ten. Raises what UNREACHABLE lists.

        A minute that is ticked again does no harm: what it has enqueued is in the index. So a minute that
        the database refused in part is ticked again a minute later, and all ten after a step of its clock.
        """
        this = now.replace(second=0, microsecond=0)
        minute = this - CATCH_UP + _MINUTE
        if self._done is not None and minute <= self._done <= this:
            minute = self._done + _MINUTE
        whole = True
        while minute <= this:
            whole = await self.tick(minute) and whole
            if whole:
                self._done = minute
            minute += _MINUTE

    async def tick(self, minute: datetime) -> bool:
        """Enqueue what is due in `minute`; whether the database took all of it.

        A failing entry is reported once, and does not stop the others.
        """
        enqueued, whole = 0, True
        for entry, outage in self._entries:
            try:
                args = encode(entry.args) if entry.predicate(minute) else None
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the edge: a predicate is the user's code
                outage.failed(error)
                continue
            try:
                if args is not None:
                    enqueued += await self._enqueue(entry, minute, args)
            except psycopg.Error as error:
                if not self._session.is_open():
                    raise
                outage.failed(error)
                whole = False
            else:
                outage.over()
        if enqueued:
            log.info("clock %s: enqueued %d", f"{minute:%Y-%m-%dT%H:%MZ}", enqueued)
        return whole

    async def _enqueue(self, entry: Scheduled, minute: datetime, args: str) -> int:
        rows = await self._session.execute(
            "tick", queue=entry.queue, name=entry.name, args=args, callsite=callsite(minute)
        )
        return len(rows)
