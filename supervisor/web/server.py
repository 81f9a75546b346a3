"""The HTTP server of `paceline: web`: /livez, /readyz, /healthz, /metrics. Reads; changes nothing."""

import socket
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from supervisor import health
from supervisor.scoreboard import Scoreboard
from supervisor.titles import set_title
from supervisor.web.metrics import Metrics

_PATIENCE = 10.0  # seconds for a client to send its request

Answer = tuple[int, str, str]  # status, content type, body


def serve(listening: socket.socket, url: str, board: Scoreboard) -> int:
    """Serve until killed."""
    set_title("web")
    registry = CollectorRegistry()
    registry.register(Metrics(board, url))

    def livez(accept: str) -> Answer:
        return _probe([stuck] if (stuck := health.live(board.header)) else [])

    def healthz(accept: str) -> Answer:
        return _probe(health.faults(board.header, board.slots()))

    def readyz(accept: str) -> Answer:
        draining = ["draining"] if board.header.draining else []
        return _probe(draining + health.faults(board.header, board.slots()))

    def metrics(accept: str) -> Answer:
        encode, content_type = choose_encoder(accept)
        return 200, content_type, encode(registry).decode()

    routes = {"/livez": livez, "/healthz": healthz, "/readyz": readyz, "/metrics": metrics}
    server = _Server(listening, routes)
    server.serve_forever()
    return 0


def _probe(faults: list[str]) -> Answer:
    return (503 if faults else 200), "text/plain; charset=utf-8", "\n".join(faults or ["ok"]) + "\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listening: socket.socket, routes: Mapping[str, Callable[[str], Answer]]) -> None:
        self.routes = routes
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _PATIENCE

    def do_GET(self) -> None:
        answer = self.server.routes.get(self.path.partition("?")[0], _nothing)
        status, content_type, body = answer(self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())

    do_HEAD = do_GET

    def log_message(self, *arguments: Any) -> None:
        """A probe a second is no news."""


def _nothing(accept: str) -> Answer:
    return 404, "text/plain; charset=utf-8", "/livez /readyz /healthz /metrics\n"
