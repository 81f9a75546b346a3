"""What is checked before the first fork: the server, the schema, poolers in between, the connection budget.

`run` does no DDL: it looks, and says what to run.
"""

import asyncio
from collections.abc import Awaitable, Callable

from supervisor import db
from supervisor.config import Registry, Settings
from supervisor.errors import PacelineError
from supervisor.log import log
from supervisor.parent.helper import Helpers, ParentOutage
from supervisor.parent.session import UNREACHABLE, Connection, Session
from supervisor.schema import refuse_gaps

OLDEST_SERVER = 140000
PARENT_SESSIONS = 3  # listener, clock, sweeper
_RETRY = 0.5  # seconds
_POOLER_LOOKS = 10  # at a busy pooler one or two may happen to look like sessions of one's own


class Boot:
    def __init__(self, settings: Settings, registry: Registry, session: Session, helpers: Helpers) -> None:
        self._settings, self._registry, self._session, self._helpers = settings, registry, session, helpers
        self._outage = ParentOutage("boot: waiting for the database", helpers)

    async def check(self, attend: Callable[[], Awaitable[None]]) -> str:
        """The server's version, once it is there and everything is as it must be. PacelineError otherwise.

        `attend` makes this parent known to others, and others to it, before any child may claim.
        """
        while True:
            try:
                version = await self._check_server()
                await self._refuse_transaction_pooler()
                await self._check_sandbox()
                await self._check_schema()
                await self._check_budget()
                await attend()
                self._outage.over()
                return version
            except UNREACHABLE as error:
                self._outage.failed(error)
            await asyncio.sleep(_RETRY)

    async def _check_server(self) -> str:
        info = (await self._session.connection()).info
        if info.server_version < OLDEST_SERVER:
            raise PacelineError(f"Postgres {info.parameter_status('server_version')}: version 14 or later is needed")
        return (info.parameter_status("server_version") or "?").split()[0]

    async def _refuse_transaction_pooler(self) -> None:
        """A pooler that lends a server connection per transaction breaks leases and LISTEN.

        A pooler makes up the backend pid that it tells a client. If it does, two sessions that ask by turns get
        one backend, or now this one and now that, unless it pools by session. Nothing is prepared until then:
        the backends may hold what an earlier boot has prepared, and another's settings.
        """
        connection = await self._session.connection()
        if await self._backend(self._session) == connection.info.backend_pid:
            return
        second = Session(self._settings.url, "paceline:boot", self._helpers, self._session.limit)
        try:
            seen = [await self._backend(each) for _ in range(_POOLER_LOOKS) for each in (self._session, second)]
        finally:
            second.drop()
        if seen[0] == seen[1] or seen != seen[:2] * _POOLER_LOOKS:
            raise PacelineError(
                "DATABASE_URL goes through a pooler in transaction mode (PgBouncer?), which breaks leases and "
                "LISTEN: connect to Postgres itself, or set pool_mode = session"
            )

    @staticmethod
    async def _backend(session: Session) -> int:
        async def work(connection: Connection) -> int:
            [(pid,)] = await (await connection.execute("SELECT pg_backend_pid()", prepare=False)).fetchall()
            return int(pid)

        return await session.call(work)

    async def _check_sandbox(self) -> None:
        """Real queues must not act on invented data, nor stand-ins write into real."""
        [(ours, _)] = await self._session.execute("sandbox")
        if ours and not self._settings.sandbox:
            raise PacelineError("this database is the sandbox's, its data invented: set another DATABASE_URL")
        if self._settings.sandbox and not ours:
            raise PacelineError("this database is no longer the sandbox's")

    async def _check_schema(self) -> None:
        [(facts,)] = await self._session.execute("check_schema")
        refuse_gaps(facts, self._registry.dedupe)

    async def _check_budget(self) -> None:
        [(allowed, used)] = await self._session.execute("connections")
        needed = len(self._registry.workers) + PARENT_SESSIONS
        if needed + used > 0.8 * allowed:
            log.warning(
                "connections: this host needs %d (one per queue, %d for the parent) and more for handlers; "
                "it may have %d, %d are in use",
                needed,
                PARENT_SESSIONS,
                allowed,
                used,
            )


def parent_session(settings: Settings, token: str, helpers: Helpers) -> Session:
    """A session whose name tells other parents that this one is here."""
    name = db.session_name("parent", token, settings.host)
    return Session(settings.url, name, helpers, settings.limits.call)
