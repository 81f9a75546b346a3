"""A Sentry ingest on loopback: takes envelopes over HTTP as the real one does, and can be slow, refuse or stall.

Format: https://develop.sentry.dev/sdk/data-model/envelopes/. What it cannot read it answers with 400 and keeps in
`faults`; the fixture fails the test for it.
"""

import gzip
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

KEY = "0123456789abcdef0123456789abcdef"
PROJECT = "1"


@dataclass(frozen=True, slots=True)
class Item:
    """One item of an envelope: its header's type, and its payload, parsed where it is JSON."""

    type: str
    payload: Any
    received: float  # on time.monotonic()


class Malformed(ValueError):
    """The request is not what the protocol asks for."""


def read_envelope(body: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Each item's header and payload. Raises Malformed."""
    head, _, rest = body.partition(b"\n")
    _header(head)
    while rest.strip(b"\n"):
        head, _, rest = rest.partition(b"\n")
        header = _header(head)
        if (length := header.get("length")) is None:  # then the payload is one line
            payload, _, rest = rest.partition(b"\n")
        else:
            payload, rest = rest[:length], rest[length:]
            if len(payload) < length:
                raise Malformed(f"an item of {length} bytes has only {len(payload)}")
            if rest and not rest.startswith(b"\n"):
                raise Malformed(f"no newline after an item of {length} bytes")
            rest = rest[1:]
        yield header, payload


def _header(line: bytes) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except ValueError as error:
        raise Malformed(f"header {line[:100]!r}: {error}") from None
    if not isinstance(header, dict):
        raise Malformed(f"header {line[:100]!r} is no object")
    return header


class Ingest:
    """Listens from the start until close(). An event counts as received when its request was read whole."""

    def __init__(self) -> None:
        self.delay = 0.0  # seconds from the request's end to the answer; the event is stored before
        self.faults: list[str] = []
        self._items: list[Item] = []
        self._refusal: int | None = None
        self._flowing = threading.Event()
        self._flowing.set()
        self._closing = threading.Event()
        self._open: set[socket.socket] = set()
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="ingest"
        )
        self._thread.start()
        self.dsn = f"http://{KEY}@127.0.0.1:{self._server.server_address[1]}/{PROJECT}"

    def events(self) -> list[dict[str, Any]]:
        """The payloads of the items of type event, in the order in which they came."""
        return [item.payload for item in self.items("event")]

    def transactions(self) -> list[dict[str, Any]]:
        """Those of type transaction."""
        return [item.payload for item in self.items("transaction")]

    def check_ins(self) -> list[dict[str, Any]]:
        """Those of type check_in: a cron's begin or end."""
        return [item.payload for item in self.items("check_in")]

    def items(self, type: str | None = None) -> list[Item]:
        """What was received: the items of one type, or all, sessions and client reports too."""
        return [item for item in tuple(self._items) if type in (None, item.type)]

    def refuse(self, status: int = 503) -> None:
        """Answer each request with this HTTP status, and store nothing."""
        self._refusal = status

    def stall(self) -> None:
        """Read requests but answer none; what they hold is stored when they are answered."""
        self._flowing.clear()

    def accept(self) -> None:
        """Back to the ordinary: end a refusal, a stall, a delay."""
        self.delay = 0.0
        self._refusal = None
        self._flowing.set()

    def close(self) -> None:
        """From here on connections are refused. Stalled requests end unanswered, and are not stored."""
        self._server.shutdown()
        self._closing.set()
        self._flowing.set()
        for connection in tuple(self._open):
            _shut(connection)
        self._server.server_close()  # waits for the threads
        self._thread.join()

    def __enter__(self) -> "Ingest":
        return self

    def __exit__(
        self, type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def receive(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """The HTTP status for one request; runs in the request's thread."""
        self._flowing.wait()
        if self._closing.is_set():
            return 503
        if self._refusal is not None:
            return self._refusal
        try:
            self._items += _read_request(path, headers, body)
        except Malformed as fault:
            self.faults.append(str(fault))
            return 400
        self._closing.wait(self.delay)
        return 200

    def opened(self, connection: socket.socket) -> None:
        self._open.add(connection)
        if self._closing.is_set():  # after close() went through them
            _shut(connection)

    def closed(self, connection: socket.socket) -> None:
        self._open.discard(connection)


def _shut(connection: socket.socket) -> None:
    """End a connection whose thread may be waiting for a next request, since the SDK keeps it open."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _read_request(path: str, headers: dict[str, str], body: bytes) -> list[Item]:
    if path != f"/api/{PROJECT}/envelope/":
        raise Malformed(f"no such path: {path}")
    if not re.search(rf"\bsentry_key={KEY}\b", headers.get("x-sentry-auth", "")):
        raise Malformed("the X-Sentry-Auth header lacks the DSN's key")
    match headers.get("content-encoding", "identity"):
        case "gzip":
            body = gzip.decompress(body)
        case "identity":
            pass
        case other:
            raise Malformed(f"content encoding {other}")
    now = time.monotonic()
    return [
        Item(header["type"], _checked(header["type"], _parsed(payload)), now) for header, payload in read_envelope(body)
    ]


def _checked(type: str, payload: Any) -> Any:
    """`payload`, if it has what Sentry refuses or loses a transaction or a check-in without. Raises Malformed."""
    if type == "transaction":
        for span in (payload["contexts"]["trace"], *payload["spans"]):
            if not re.fullmatch(r"[0-9a-f]{32}", span["trace_id"]) or not re.fullmatch(
                r"[0-9a-f]{16}", span["span_id"]
            ):
                raise Malformed(f"ids of {span}")
        for part in (payload, *payload["spans"]):
            if not part["start_timestamp"] <= part["timestamp"]:  # ISO 8601, UTC
                raise Malformed(f"ends before it begins: {part}")
    if type == "check_in":
        if not re.fullmatch(r"(?![0-9]+$)[a-z0-9_-]{1,50}", payload["monitor_slug"]):
            raise Malformed(f"slug of {payload}")
        if payload["status"] not in ("in_progress", "ok", "error") or not re.fullmatch(
            r"[0-9a-f]{32}", payload["check_in_id"]
        ):
            raise Malformed(f"check-in {payload}")
    return payload


def _parsed(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except ValueError:
        return payload  # an attachment


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that server_close() waits for them

    def __init__(self, ingest: Ingest) -> None:
        self.ingest = ingest
        super().__init__(("127.0.0.1", 0), _Request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client that was killed is no fault here
            super().handle_error(request, client_address)


class _Request(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"  # the SDK keeps its connection open

    def setup(self) -> None:
        super().setup()
        self.server.ingest.opened(self.connection)

    def finish(self) -> None:
        self.server.ingest.closed(self.connection)
        super().finish()

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:  # the client was killed in the middle
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        status = self.server.ingest.receive(self.path, headers, body)
        answer = b"{}"
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass  # a test's output is not an access log
