"""The process that serves probes and metrics: a child without a queue, restarted like any."""

import asyncio
import importlib.util
import socket
from typing import NoReturn

from supervisor.errors import UsageError
from supervisor.parent.helper import Helpers
from supervisor.parent.restart import restart_at
from supervisor.scoreboard import Scoreboard
from supervisor.worker import boottime


class Web:
    """Listens in the parent, so that a bad address is told at once and no restart refuses a connection."""

    def __init__(self, address: tuple[str, int], url: str, board: Scoreboard, helpers: Helpers, spell: float) -> None:
        self._url, self._board, self._helpers, self._spell = url, board, helpers, spell
        if importlib.util.find_spec("prometheus_client") is None:
            raise UsageError("--web needs prometheus-client: `pip install 'paceline[web]'`")
        try:
            family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
            self.socket = socket.create_server(address, family=family, backlog=64)
        except OSError as error:
            raise UsageError(f"--web {address[0]}:{address[1]}: {error.strerror or error}") from None

    async def run(self) -> NoReturn:
        deaths: list[float] = []
        while True:
            began = boottime()
            code, _ = await self._helpers.ask(self._serve, None, keep=(self.socket.fileno(),))
            if boottime() - began > self._spell:
                deaths.clear()
            deaths.append(boottime())
            if len(deaths) == 1:
                self._helpers.report(f"web: process ended: {code}")
            await asyncio.sleep(restart_at(deaths) - boottime())

    def _serve(self, pipe: int) -> int:
        from supervisor.web.server import serve  # here alone: no other process needs what it imports

        return serve(self.socket, self._url, self._board)
