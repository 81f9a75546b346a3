"""One small HTTP server that stands in for all vendors: a vendor's paths are below its name, `/apollo/...`.

It refuses what the vendor refuses, and can be told to answer badly. What a vendor says is in the file of its name.
"""

import json
import re
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Literal
from urllib.parse import parse_qsl, urlsplit

TOKEN = "sandbox-token"  # the one that all stand-ins take

Manner = Literal["whole", "cut", "drip", "stall"]


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str  # below the vendor's name
    query: Mapping[str, str]
    headers: Mapping[str, str]  # by name in lower case
    body: bytes
    base: str  # the vendor's URL, for links
    port: int  # of the client: another one for each connection

    def json(self) -> Any:
        """The body; None where it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Reply:
    """`body` is sent as it is, or as JSON. A cut one ends in the middle, a dripping and a stalled one never."""

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    manner: Manner = "whole"
    delay: float = 0.0  # seconds before it

    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class Refused(Exception):
    """Raised by a vendor's own checks."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply


Answers = Callable[..., Reply]  # (the vendor, the request, the groups of the pattern)


class Vendor(ABC):
    """A stand-in. Subclasses have a name, routes, authorise() and refusal(); tests hold one and tell it what to do."""

    name: ClassVar[str]
    routes: ClassVar[Sequence[tuple[str, str, Answers]]]  # (method, pattern of the whole path, the function)
    settings: ClassVar[Mapping[str, str]] = {}  # what its queue's environment needs besides the URL and the token

    def __init__(self) -> None:
        self.count = 0  # requests so far
        self.requests: deque[Request] = deque(maxlen=100)  # the last ones
        self._told: deque[Callable[[], Reply | Manner | float]] = deque()

    # What a subclass says

    @abstractmethod
    def authorise(self, request: Request) -> None:
        """Raise Refused where a header is missing or the token is another one."""

    @abstractmethod
    def refusal(self, status: int, retry_after: float) -> Reply:
        """The vendor's own answer of that status: its headers, its body."""

    # What a test says

    def tell(self, what: "int | Reply | Manner | float", *, retry_after: float = 1, times: int = 1) -> None:
        """Of the next `times` requests: a status is refused in the vendor's own manner, a Reply is the answer; a
        manner, and a float of seconds (late), are how the right answer comes."""
        given = self.refusal(what, retry_after) if isinstance(what, int) else what
        self._told.extend([lambda: given] * times)

    def reset(self) -> None:
        self._told.clear()
        self.requests.clear()
        self.count = 0

    # What the server asks

    def answer(self, request: Request) -> Reply:
        self.count += 1
        self.requests.append(request)
        told = self._told.popleft()() if self._told else None
        if isinstance(told, Reply):
            return told
        try:
            reply = self._routed(request)
        except Refused as refused:
            reply = refused.reply
        if isinstance(told, str):
            return replace(reply, manner=told)
        return replace(reply, delay=told) if told else reply

    def _routed(self, request: Request) -> Reply:
        matches = [(method, match, to) for method, at, to in self.routes if (match := re.fullmatch(at, request.path))]
        if not matches:
            return self.refusal(404, 0)
        for method, match, to in matches:
            if method == request.method:
                self.authorise(request)
                return to(self, request, **match.groupdict())
        return self.refusal(405, 0)


class Sandbox:
    """All stand-ins behind one port of loopback, from the start until close()."""

    def __init__(self, vendors: Sequence[Vendor], port: int = 0) -> None:
        self.vendors = {vendor.name: vendor for vendor in vendors}
        self.closing = threading.Event()
        self._server = _Server(self, port)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def environment(self) -> dict[str, str]:
        """What the queues' clients are to be started with."""
        urls = {f"{name.upper()}_URL": f"{self.url}/{name}" for name in self.vendors}
        tokens = {f"{name.upper()}_TOKEN": TOKEN for name in self.vendors}
        return (
            urls | tokens | {key: value for vendor in self.vendors.values() for key, value in vendor.settings.items()}
        )

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, sandbox: Sandbox, port: int) -> None:
        self.sandbox = sandbox
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that hangs up


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"  # connections are kept
    disable_nagle_algorithm = True  # headers and body are two writes

    def handle_one_request(self) -> None:
        with suppress(ConnectionError):
            super().handle_one_request()

    def _serve(self) -> None:
        split = urlsplit(self.path)
        _, name, rest = (split.path + "/").split("/", 2)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        vendor = self.server.sandbox.vendors.get(name)
        if vendor is None:
            self._send(Reply(404))
            return
        request = Request(
            self.command,
            "/" + rest.removesuffix("/"),
            dict(parse_qsl(split.query, keep_blank_values=True)),
            {key.lower(): value for key, value in self.headers.items()},
            body,
            f"{self.server.sandbox.url}/{name}",
            self.client_address[1],
        )
        self._send(vendor.answer(request))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _send(self, reply: Reply) -> None:
        closing = self.server.sandbox.closing
        closing.wait(reply.delay)
        if reply.manner == "stall":
            closing.wait()
            self.close_connection = True
            return
        content = reply.content()
        self.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        if reply.status != 304:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if reply.manner == "cut":
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
        elif reply.manner == "drip":
            for byte in content[:-1]:
                self.wfile.write(bytes([byte]))
                if closing.wait(0.02):
                    break
            closing.wait()
        else:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass
