"""The sweep: rows left `started` past every limit are ended, whatever the queue's child does meanwhile."""

import asyncio

from supervisor import log, status
from supervisor.config import Limits
from supervisor.lease import Sessions
from supervisor.parent.children import Children
from supervisor.parent.helper import Helpers, ParentOutage
from supervisor.parent.session import UNREACHABLE, Session
from supervisor.scoreboard import Header


class Sweeper:
    def __init__(self, session: Session, children: Children, helpers: Helpers, header: Header, limits: Limits) -> None:
        self._session, self._children, self._header, self._limits = session, children, header, limits
        self._outage = ParentOutage("sweep", helpers)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._limits.sweep)
            try:
                await self.sweep()
                self._outage.over()
            except UNREACHABLE as error:
                self._outage.failed(error)

    async def sweep(self) -> None:
        """Safe because deadlines are enforced by killing: past its queue's largest timeout, a row has no process."""
        [(now, names)] = await self._session.execute("sessions")
        self._children.note_timeouts(Sessions.read(now, names).timeouts)
        await self._session.execute("end_pauses")
        served = self._children.all
        limits = [
            float(max(child.worker.job_timeout, child.slot.parent.timeout) + self._limits.sweep_margin)
            for child in served  # all floats: psycopg refuses a list that mixes them with ints
        ]
        rows = await self._session.execute(
            "sweep", queues=[child.queue for child in served], limits=limits, status=status.interrupted()
        )
        self._header.sweeps += 1
        self._header.swept += len(rows)
        for id, queue, name in rows:
            log.fields({"queue": queue, "job": name, "id": id, "status": status.interrupted()})

    async def end_rows(self) -> None:
        """End the rows of children that died in a drain: with the status their slots show, or as interrupted.

        With the database gone, one log line for each.
        """
        self._session.drop()  # one from before an outage would fail once, and here each row has one try
        for child in self._children.left_jobs():
            slot = child.slot
            text = slot.child.result if slot.child.ended else slot.parent.interrupted
            shown = text.decode("utf-8", "replace")
            pairs = {"queue": child.queue, "job": slot.child.name.decode(), "id": slot.child.running, "status": shown}
            try:
                await self._session.execute("interrupt", id=slot.child.running, status=shown)
                log.fields(pairs)
            except UNREACHABLE as error:
                log.log.error("could not record the end of a job, end it by hand: %s", " ".join(str(error).split()))
                log.fields(pairs, level="ERROR")
