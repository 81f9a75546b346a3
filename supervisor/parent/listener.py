"""The parent's ear: LISTEN on `jobs` wakes children; on `jobs_control` are leases, other parents and operators.

LISTEN is a hint: every child polls as well. The connection is pinged every few seconds; lost, it is opened
again within a second, and every child is woken once.
"""

import asyncio

import psycopg

from supervisor.lease import Sessions
from supervisor.log import log
from supervisor.parent.children import Children
from supervisor.parent.control import Control
from supervisor.parent.helper import Helpers, ParentOutage
from supervisor.parent.session import UNREACHABLE, Connection, Session
from supervisor.scoreboard import Header
from supervisor.worker import boottime

_RETRY = 0.5  # seconds: parents are back within a second of the server, which the take-over rule relies on


class Listener:
    def __init__(
        self, session: Session, children: Children, control: Control, helpers: Helpers, header: Header, ping: float
    ) -> None:
        self._session, self._children, self._control = session, children, control
        self._header, self._ping = header, ping
        self._outage = ParentOutage("LISTEN", helpers)
        self._token = header.token.decode()
        self._met = False  # a hello was heard since the last look
        self._asked: list[str] = []  # operators' questions that wait for an answer
        self._looked = 0.0

    async def look(self) -> float:
        """Note the other parents and the timeouts that sessions show; the first look dates the boot. Server's time."""
        [(now, names)] = await self._session.execute("sessions")
        sessions = Sessions.read(now, names)
        header = self._header
        header.booted_at = header.booted_at or now
        if self._met or sessions.parents - {self._token}:
            header.met_at, self._met = now, False
        self._children.note_timeouts(sessions.timeouts)
        self._looked = boottime()
        return sessions.now

    async def run(self) -> None:
        while True:
            try:
                await self._listen()
            except UNREACHABLE as error:
                self._session.drop()
                if not self._header.deaf_since:
                    self._header.deaf_since = boottime()
                self._header.listening_since = 0.0
                self._outage.failed(error)
            await asyncio.sleep(_RETRY)

    async def attend(self) -> None:
        """LISTEN, say hello, and look: from here on no parent goes unmet. Raises what UNREACHABLE lists."""
        connection = await self._session.connection()
        connection.add_notify_handler(self._heard)
        await self._session.call(lambda c: c.execute("LISTEN jobs"))
        await self._session.call(lambda c: c.execute("LISTEN jobs_control"))
        await self._session.execute("say_hello", token=self._token)
        self._header.listening_since, self._header.deaf_since = await self.look(), 0.0

    async def _listen(self) -> None:
        """Hear until the connection is lost, which raises what UNREACHABLE lists."""
        if not self._header.listening_since:  # the boot has done it once
            await self.attend()
        connection = await self._session.connection()
        self._outage.over()
        self._children.wake_all()  # for what was enqueued while nobody listened
        while True:
            await self._hear(connection, self._looked + self._ping - boottime())
            while self._asked:
                for channel, answer in await self._control.answer(self._asked.pop(0)):
                    await self._session.execute("answer", channel=channel, answer=answer)
            # The ping, which is due however much is heard: it is by looking that other parents are met.
            if self._met or boottime() >= self._looked + self._ping:
                await self.look()

    async def _hear(self, connection: Connection, seconds: float) -> None:
        """For at most `seconds` act on what the server says, until there is more to do than to wake a child."""
        self._take(connection)  # what came along with an earlier answer is in the buffer, and wakes no wait
        if self._asked or self._met:
            return
        loop = asyncio.get_running_loop()
        heard = loop.create_future()

        def spoken() -> None:
            # Children are woken from here: to wake this task, so that it wakes them, would take a turn of the loop.
            try:
                connection.pgconn.consume_input()  # raises OperationalError when the server is gone
                self._take(connection)
            except psycopg.Error as error:
                if not heard.done():
                    heard.set_exception(error)
            if (self._asked or self._met) and not heard.done():
                heard.set_result(None)

        descriptor = connection.fileno()
        loop.add_reader(descriptor, spoken)
        try:
            async with asyncio.timeout(seconds):
                await heard
        except TimeoutError:
            return
        finally:
            loop.remove_reader(descriptor)

    def _take(self, connection: Connection) -> None:
        while notify := connection.pgconn.notifies():
            self._act(notify.relname.decode(), notify.extra.decode("utf-8", "replace"))

    def _heard(self, notify: psycopg.Notify) -> None:
        """A notification that arrived with the answer to a query."""
        self._act(notify.channel, notify.payload)

    def _act(self, channel: str, payload: str) -> None:
        if channel == "jobs":
            self._children.wake(payload)
            return
        word, _, rest = payload.partition(" ")
        if word == "released":
            self._children.wake_standby(rest)
        elif word == "ask":
            self._asked.append(rest)
        elif word == "hello" and rest != self._token:
            self._met = True
            log.info("another parent is here: %s", rest)
