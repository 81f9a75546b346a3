"""A relay between a client and Postgres, for the faults of a network: silence, a stall, a cut, a refusal.

It listens on 127.0.0.1 (or in a unix socket's directory) and connects to the server that a URL names. It runs in a
thread of its own; each method returns when it has taken effect. A test in the same process that drives libpq by hand
must not wait with the GIL held, as PQgetResult does.
"""

import asyncio
import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import Coroutine
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Literal
from urllib.parse import quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

Towards = Literal["server", "client"]
_BOTH: tuple[Towards, ...] = ("server", "client")
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of zero: close() sends a reset


class _Flow(Enum):
    FORWARD = "forward"
    STALL = "stall"
    DROP = "drop"


class _Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self.writers = list(writers)
        self.task = asyncio.current_task()
        self.holed: set[Towards] = set()  # the directions in which bytes were lost

    def reset(self) -> None:
        for writer in self.writers:
            with suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
        if self.task is not None:
            self.task.cancel()


class Relay:
    """Forwards until told otherwise. `url` is the given one, by way of the relay."""

    def __init__(self, url: str, *, unix: bool = False) -> None:
        with psycopg.connect(url) as probe:  # where libpq really goes, defaults and PGHOST included
            self._host, self._port = probe.info.host, probe.info.port
        self._flow: dict[Towards, _Flow] = dict.fromkeys(_BOTH, _Flow.FORWARD)
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self._directory = Path(tempfile.mkdtemp(prefix="relay-", dir="/tmp")) if unix else None
        self._address = ("127.0.0.1", 0)  # the port is drawn once, and kept through a refusal
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay")
        self._thread.start()
        try:
            self._call(self._listen())
        except BaseException:
            self.close()
            raise
        self.url = self._url(url)

    def drop(self, towards: Towards | None = None) -> None:
        """Swallow what comes, in one direction or both, and tell nobody: the peer has vanished.

        A connection that lost bytes stays silent in that direction for good, for a stream with a hole in it
        cannot go on; it ends by cut(), or by its ends giving up. Neither end learns that the other closed.
        """
        self._call(self._set(_Flow.DROP, towards))

    def stall(self, towards: Towards | None = None) -> None:
        """Hold what comes, in one direction or both; resume() delivers it."""
        self._call(self._set(_Flow.STALL, towards))

    def resume(self) -> None:
        """Forward again, in both directions, and accept connections again."""
        self._call(self._set(_Flow.FORWARD, None))
        self._call(self._listen())

    def cut(self) -> None:
        """Reset every connection at both ends; new ones are served."""
        self._call(self._cut())

    def refuse(self) -> None:
        """Refuse new connections until resume(). With cut(): the server is down."""
        self._call(self._unlisten())

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._links)

    def close(self) -> None:
        self._call(self._unlisten())
        self._call(self._cut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._directory is not None:
            shutil.rmtree(self._directory)

    def __enter__(self) -> "Relay":
        return self

    def __exit__(
        self, type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _url(self, url: str) -> str:
        rest = {key: str(value) for key, value in conninfo_to_dict(url).items()}
        user, password, database = (quote(rest.pop(key, ""), safe="") for key in ("user", "password", "dbname"))
        for key in ("host", "hostaddr", "port"):
            rest.pop(key, None)
        authority = f"{user}:{password}@" if password else f"{user}@" if user else ""
        if self._directory is None:
            authority += f"127.0.0.1:{self._address[1]}"
        else:
            rest["host"] = str(self._directory)
        return f"postgresql://{authority}/{database}?{urlencode(rest)}"

    def _call(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    # From here on: in the relay's thread

    async def _listen(self) -> None:
        if self._server is not None:
            return
        if self._directory is None:
            self._server = await asyncio.start_server(self._serve, *self._address)
            self._address = self._server.sockets[0].getsockname()
        else:
            self._server = await asyncio.start_unix_server(self._serve, self._directory / ".s.PGSQL.5432")

    async def _unlisten(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._directory is not None:  # Python before 3.13 leaves it
            (self._directory / ".s.PGSQL.5432").unlink(missing_ok=True)

    async def _set(self, flow: _Flow, towards: Towards | None) -> None:
        for direction in _BOTH if towards is None else (towards,):
            self._flow[direction] = flow
        self._changed.set()  # wakes those that wait now
        self._changed.clear()

    async def _cut(self) -> None:
        tasks = [link.task for link in self._links if link.task is not None]
        for link in self._links:
            link.reset()
        if tasks:
            await asyncio.wait(tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(writer)
        self._links.add(link)
        # A cut cancels this task; asyncio wants to see no CancelledError of a connection's task.
        with suppress(asyncio.CancelledError):
            await self._forward(link, reader, writer)
        for end in link.writers:
            end.close()
        for end in link.writers:
            with suppress(OSError, asyncio.CancelledError):
                await end.wait_closed()
        self._links.discard(link)

    async def _forward(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._flow["server"] is _Flow.DROP:  # the server never hears of it
            await asyncio.Event().wait()
        try:
            from_server, to_server = await self._connect()
        except OSError:
            link.reset()
            return
        link.writers.append(to_server)
        pumps = [
            asyncio.create_task(self._pump(link, reader, to_server, "server")),
            asyncio.create_task(self._pump(link, from_server, writer, "client")),
        ]
        try:
            # As soon as one end has closed, so does the other: a server that is gone must not seem to read on.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._host.startswith("/"):
            return await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port}")
        return await asyncio.open_connection(self._host, self._port)

    async def _pump(
        self, link: _Link, source: asyncio.StreamReader, sink: asyncio.StreamWriter, towards: Towards
    ) -> None:
        """Returns when the source has closed, and it is known."""
        with suppress(OSError):  # a reset is an end too
            while data := await source.read(65536):
                if await self._passes(link, towards):
                    sink.write(data)
                    await sink.drain()
        if not await self._passes(link, towards):
            await asyncio.Event().wait()  # until a cut

    async def _passes(self, link: _Link, towards: Towards) -> bool:
        """Whether what has come may go on, once it is known."""
        while self._flow[towards] is _Flow.STALL:
            await self._changed.wait()
        if self._flow[towards] is _Flow.DROP:
            link.holed.add(towards)
        return towards not in link.holed
