"""The child's one engine connection. The lease is on it, and every claim goes through it."""

import time
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from supervisor import db, lease
from supervisor.sql import statement

_TAKE_BACK = 1.0  # seconds to wait for the server to end this process's own, lost session


class Session:
    """One connection at a time: opened, leased, dropped. `leased` is true only while its connection stands."""

    def __init__(self, url: str, queue: str, job_timeout: float, host: str) -> None:
        self.url, self.queue = url, queue
        self.name = db.session_name(queue, lease.shown_timeout(job_timeout), host)
        self.leased = False
        self._connection: db.EngineConnection | None = None

    @property
    def connection(self) -> db.EngineConnection:
        """The connection, opened if need be. Raises psycopg.Error."""
        if self._connection is None:
            self._connection = db.connect(self.url, self.name)
        return self._connection

    def execute(self, name: str, /, **params: Any) -> psycopg.Cursor[TupleRow]:
        """Run sql/NAME.sql. Raises psycopg.Error."""
        return self.connection.execute(statement(name), params)

    def lost(self, error: BaseException) -> bool:
        return db.lost(error, self._connection)

    def fileno(self) -> int:
        """The connection's descriptor; -1 while there is none."""
        return self._connection.fileno() if self._connection is not None and not self._connection.closed else -1

    def drop(self) -> None:
        """Close the connection, and with it the lease."""
        connection, self._connection, self.leased = self._connection, None, False
        if connection is not None:
            connection.close()

    def take_lease(self, predecessor: int) -> bool:
        """Try to become the queue's poller. `predecessor` is the backend of this queue's last session here.

        That session may still be standing on the server's side (its process was killed a moment ago, its
        socket is held open by something that it forked, its network is gone): then it is terminated.
        """
        if not lease.try_lease(self.connection, self.queue):
            if lease.lease_holder(self.connection, self.queue) != (predecessor, self.name):
                return False
            lease.end_session(self.connection, predecessor, self.name)
            give_up = time.monotonic() + _TAKE_BACK
            while not lease.try_lease(self.connection, self.queue):
                if time.monotonic() > give_up:
                    return False
                time.sleep(0.01)
        self.leased = True
        return True

    def holder(self) -> str:
        """The host that holds the lease, `?` where none does or its name has been cut off."""
        found = lease.lease_holder(self.connection, self.queue)
        return lease.host_of(found[1]) if found else "?"

    def release(self) -> None:
        """Let go of the lease, so that a standby elsewhere takes over at once, and close."""
        if self.leased:
            lease.release_lease(self.connection, self.queue)
        self.drop()
