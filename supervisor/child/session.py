"""The child's one engine connection. The lease is on it, and every claim goes through it."""

import time
from collections.abc import Callable

import psycopg
from psycopg import pq
from psycopg.rows import TupleRow

from supervisor import db, lease
from supervisor.child.connecting import Hosts
from supervisor.child.descriptors import identity
from supervisor.child.statements import Statements

_TAKE_BACK = 1.0  # seconds to wait for the server to end this process's own, lost session


_NO_SOCKET = identity(-1)


class Session:
    """One connection at a time: opened, leased, dropped. `leased` is true only while its connection stands."""

    def __init__(self, url: str, queue: str, job_timeout: float, host: str) -> None:
        self.queue = queue
        self.name = db.session_name(queue, lease.shown_timeout(job_timeout), host)
        self._hosts = Hosts(db.engine_conninfo(url, self.name))
        self.leased = False
        self.late: Callable[[], object] = lambda: None  # called every tenth of a second while an answer is awaited
        self._statements: Statements | None = None  # on the connection
        self.socket = _NO_SOCKET

    @property
    def pgconn(self) -> pq.abc.PGconn:
        """The connection, opened if need be. Raises psycopg.Error."""
        return (self._statements or self._open()).pgconn

    def ask(self, name: str, /, **params: str | int) -> list[TupleRow]:
        """The rows of sql/NAME.sql, not prepared: for what is asked once in a while. Raises psycopg.Error."""
        return (self._statements or self._open()).ask(name, params)

    def execute(
        self, name: str, /, meanwhile: Callable[[], object] | None = None, **params: str | int
    ) -> list[TupleRow]:
        """The rows of sql/NAME.sql; `meanwhile` is called while the server works on it. Raises psycopg.Error."""
        return (self._statements or self._open()).execute(name, params, meanwhile)

    def _open(self) -> Statements:
        statements = Statements(self._hosts.connect(), self.late)
        try:
            statements.ask("session", {})
        except psycopg.Error:
            statements.pgconn.finish()  # no statement may run in a session that is not set so
            raise
        self._statements, self.socket = statements, identity(statements.pgconn.socket)
        return statements

    def lost(self, error: BaseException) -> bool:
        return db.lost(error, self._statements.pgconn if self._statements else None)

    def fileno(self) -> int:
        """The connection's descriptor; -1 while there is none."""
        pgconn = self._statements.pgconn if self._statements else None
        return pgconn.socket if pgconn and pgconn.status == pq.ConnStatus.OK else -1

    def drop(self) -> None:
        """Close the connection, and with it the lease."""
        statements, self._statements = self._statements, None
        self.leased, self.socket = False, _NO_SOCKET
        if statements:
            statements.pgconn.finish()

    def take_lease(self, predecessor: int) -> bool:
        """Try to become the queue's poller. `predecessor` is the backend of this queue's last session here.

        That session may still be standing on the server's side (its process was killed a moment ago, its
        socket is held open by something that it forked, its network is gone): then it is terminated.
        """
        if not lease.try_lease(self.ask, self.queue):
            if lease.lease_holder(self.ask, self.queue) != (predecessor, self.name):
                return False
            lease.end_session(self.ask, predecessor, self.name)
            give_up = time.monotonic() + _TAKE_BACK
            while not lease.try_lease(self.ask, self.queue):
                if time.monotonic() > give_up:
                    return False
                time.sleep(0.01)
        self.leased = True
        return True

    def holder(self) -> str:
        """The host that holds the lease, `?` where none does or its name has been cut off."""
        found = lease.lease_holder(self.ask, self.queue)
        return lease.host_of(found[1]) if found else "?"

    def release(self) -> None:
        """Let go of the lease, so that a standby elsewhere takes over at once, and close."""
        if self.leased:
            lease.release_lease(self.ask, self.queue)
        self.drop()
