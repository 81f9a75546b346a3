"""The watch on leases that other hosts hold: once a second for all queues that stand by, which hold no session."""

import asyncio

from supervisor.lease import Sessions
from supervisor.parent.children import Children
from supervisor.parent.helper import Helpers, ParentOutage
from supervisor.parent.session import UNREACHABLE, Session

_EVERY = 1.0  # seconds


class StandbyWatch:
    def __init__(self, session: Session, children: Children, helpers: Helpers) -> None:
        self._session, self._children = session, children
        self._outage = ParentOutage("watch on leases", helpers)

    async def run(self) -> None:
        while True:
            if queues := self._children.standing_by():
                try:
                    await self.watch(queues)
                    self._outage.over()
                except UNREACHABLE as error:
                    self._outage.failed(error)
            else:
                self._session.drop()
            await asyncio.sleep(_EVERY)

    async def watch(self, queues: list[str]) -> None:
        """Wake the children whose lease is free; note the timeouts that holders show."""
        rows = await self._session.execute("free_leases", queues=queues)
        shown = Sessions.read(0.0, [name for _, _, name in rows]).timeouts
        for queue, free, _ in rows:
            if free:
                self._children.wake_standby(queue)
        self._children.note_timeouts(shown)
