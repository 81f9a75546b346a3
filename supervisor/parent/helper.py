"""Helpers: short-lived forked processes that do what would need a thread in the parent.

Three uses: resolving the database server's name, reporting to Sentry, and trying whether new code loads.
A helper answers over a pipe and exits; past its limit it is killed.
"""

import asyncio
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from supervisor import report
from supervisor.log import log
from supervisor.parent.forking import Forker, unblock

_REPORTS_AT_ONCE = 8  # a flood of faults must not become a flood of processes


class Helpers:
    """Runs helpers, and knows their pids so that their ends are not taken for children's."""

    def __init__(self, forker: Forker) -> None:
        self._forker = forker
        self._exits: dict[int, asyncio.Future[int]] = {}
        self._reports: set[asyncio.Task[object]] = set()

    def exited(self, pid: int, status: int) -> bool:
        """Told of every process reaped; whether it was a helper."""
        future = self._exits.pop(pid, None)
        if future is not None and not future.done():
            future.set_result(os.waitstatus_to_exitcode(status))
        return future is not None

    async def ask(self, work: Callable[[int], int], limit: float | None, keep: Sequence[int] = ()) -> tuple[int, bytes]:
        """Fork, call `work(write end of the pipe)`; (exit code, all that it wrote). Raises TimeoutError, OSError."""
        loop = asyncio.get_running_loop()
        read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

        def run() -> int:
            unblock()
            os.set_blocking(write_end, True)
            return work(write_end)

        try:
            pid = self._forker.fork(run, keep=(write_end, *keep))
        except OSError:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        self._exits[pid] = ended = loop.create_future()
        answer = bytearray()

        def read() -> None:
            with suppress(BlockingIOError):
                while part := os.read(read_end, 65536):
                    answer.extend(part)
                loop.remove_reader(read_end)

        loop.add_reader(read_end, read)
        try:
            done, _ = await asyncio.wait({ended}, timeout=limit)
            if not done:
                raise TimeoutError(f"helper took longer than {limit:g} s")
            read()
            return ended.result(), bytes(answer)
        finally:
            if not ended.done():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            loop.remove_reader(read_end)
            os.close(read_end)

    async def resolve(self, conninfo: str, limit: float) -> str:
        """`conninfo` with a hostaddr for every host name in it. Raises OSError, TimeoutError.

        psycopg's own asynchronous resolution uses a thread; the system's may block for many seconds.
        """
        params = conninfo_to_dict(conninfo)
        hosts = str(params.get("host") or os.environ.get("PGHOST") or "").split(",")
        if params.get("hostaddr") or not any(map(_needs_resolving, hosts)):
            return conninfo
        ports = str(params.get("port") or os.environ.get("PGPORT") or "").split(",")

        def work(pipe: int) -> int:
            for number, host in enumerate(hosts):
                port = ports[number] if len(ports) > 1 else ports[0]
                for address in _addresses(host, port):
                    os.write(pipe, f"{host}\t{address}\t{port}\n".encode())
            return 0

        _, answer = await self.ask(work, limit)
        found = [line.split("\t") for line in answer.decode().splitlines()]
        if not found:
            raise OSError(f"could not resolve {', '.join(hosts)}")
        host, hostaddr, port = (",".join(column) for column in zip(*found, strict=True))
        return make_conninfo(conninfo, host=host, hostaddr=hostaddr, port=port)

    def report(self, text: str, error: BaseException | None = None, **tags: str) -> None:
        """Log a fault now, and send its event from a helper."""
        log.error("%s", " ".join(text.split()))
        if not report.enabled() or len(self._reports) >= _REPORTS_AT_ONCE:
            return

        def work(pipe: int) -> int:
            report.capture(text, error, tags)
            report.flush(limit=5.0)
            return 0

        task: asyncio.Task[object] = asyncio.ensure_future(self._send(work))
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)

    async def _send(self, work: Callable[[int], int]) -> None:
        with suppress(TimeoutError, OSError):
            await self.ask(work, limit=10.0)

    async def reported(self, limit: float) -> None:
        """Wait for events that are on their way, `limit` seconds at most."""
        if self._reports:
            await asyncio.wait(self._reports, timeout=limit)

    async def try_command(self, arguments: list[str], env: Mapping[str, str], limit: float) -> tuple[int, str]:
        """Run this Python with `arguments`, argv[0] among them; (exit code, what it wrote to standard error)."""

        def work(pipe: int) -> NoReturn:
            os.dup2(pipe, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.execve(sys.executable, arguments, {**os.environ, **env})

        code, answer = await self.ask(work, limit)
        return code, answer.decode("utf-8", "replace").strip()


def _is_local(host: str) -> bool:
    return not host or host.startswith(("/", "@"))


def _needs_resolving(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return not _is_local(host)
    return False


def _addresses(host: str, port: str) -> list[str]:
    if _is_local(host):
        return [""]  # an empty hostaddr in the list leaves a local socket one
    try:
        found = socket.getaddrinfo(host, port or "5432", type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class ParentOutage(report.Outage):
    """An Outage of the parent's: its event goes through a helper."""

    def __init__(self, what: str, helpers: Helpers) -> None:
        super().__init__(what)
        self._helpers = helpers

    def tell(self, text: str, error: BaseException) -> None:
        self._helpers.report(text, error)
