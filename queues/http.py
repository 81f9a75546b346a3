"""What the clients of the vendors share: one bounded HTTP call, and what its answer means.

What only one vendor says is not here; it is in the client beside its queue.
No error raised here holds a body, a token or a URL: statuses, log lines and events are read by many.
"""

import itertools
import logging
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlencode, urljoin

import msgspec
import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError
from urllib3.exceptions import TimeoutError as TimedOut

from supervisor import Context, RateLimited, TokenRefused, UnexpectedStatus

T = TypeVar("T")

LONGEST = 8 << 20  # bytes of an answer's body
_MARGIN = 0.25  # seconds before the deadline that are kept for telling that there was no answer
_NO_TIME_GIVEN = 60.0  # seconds: what a vendor that names no wait is left alone for
_REDIRECTS = (301, 302, 307, 308)

logging.getLogger("urllib3").setLevel(logging.ERROR)  # its warnings print URLs


class NoToken(TokenRefused):
    """There is nothing to show the vendor; the queue pauses like one whose token was refused."""

    def __init__(self, variable: str) -> None:
        super().__init__()
        self.args = (f"set {variable}",)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer, read whole."""

    vendor: str
    status: int
    headers: Mapping[str, str] = field(repr=False)  # by name, in any case
    body: bytes = field(repr=False)

    def read(self, type: type[T]) -> T:
        """The body's JSON as `type`. Raises ValueError that names the place, and holds nothing of the body."""
        try:
            return msgspec.json.decode(self.body, type=type)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            why = re.sub(r"'.*'", "...", str(error))  # an enum's wrong value is quoted
            raise ValueError(f"{self.vendor}: answer of another shape: {why}") from None

    def word(self, *path: str) -> str:
        """The code at that path of a JSON body, `word("error", "type")`; empty where there is no single word."""
        found = self._at(path)
        return found if re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", found) else ""

    def says(self, text: str, *path: str) -> bool:
        """Whether the text at that path of a JSON body holds `text`, in any case; where a vendor gives no code."""
        return text.lower() in self._at(path).lower()

    def _at(self, path: tuple[str, ...]) -> str:
        found: Any = None
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            found = msgspec.json.decode(self.body)
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, str) else ""

    def retry_after(self) -> float:
        """Seconds that the vendor asks for in `Retry-After`, a number or a date (RFC 9110, section 10.2.3)."""
        given = self.headers.get("retry-after", "")
        with suppress(ValueError):
            return float(given)
        with suppress(ValueError):
            return max(0.0, parsedate_to_datetime(given).timestamp() - time.time())
        return _NO_TIME_GIVEN


class Client(ABC):
    """One vendor's API. Its address, token and longest call are APOLLO_URL, APOLLO_TOKEN and APOLLO_TIMEOUT (seconds).

    Made in the parent, as data; each process opens a connection of its own on first use.
    """

    vendor: ClassVar[str]
    default_url: ClassVar[str]

    def __init__(self) -> None:
        self._variable = self.vendor.upper()
        self.url = (os.environ.get(f"{self._variable}_URL") or self.default_url).rstrip("/")
        self.token = os.environ.get(f"{self._variable}_TOKEN", "").strip()
        given = os.environ.get(f"{self._variable}_TIMEOUT") or "30"
        try:
            self.timeout = float(given)
            if not self.timeout > 0:
                raise ValueError
            self._path = urllib3.util.parse_url(self.url).path or ""
            connections(self.url)
        except (ValueError, HTTPError):
            raise ValueError(f"{self._variable}_URL or _TIMEOUT: not an http(s) URL, or not seconds") from None
        if not (self.token.isascii() and self.token.isprintable()):  # http.client would quote it in its error
            raise ValueError(f"{self._variable}_TOKEN: not a line of ASCII")
        self._pool: urllib3.HTTPConnectionPool | None = None
        self._pid = 0

    @abstractmethod
    def headers(self) -> dict[str, str]:
        """What each request carries, the token too."""

    def refusal(self, answer: Answer) -> Exception | None:
        """What a handler gets to see of an answer that the call did not expect; None where it is a good one."""
        if answer.status == 429:
            return RateLimited(answer.retry_after())
        return UnexpectedStatus(answer.status) if answer.status >= 300 else None

    def call(
        self,
        ctx: Context,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        fine: Collection[int] = (),
        redirects: int = 0,
    ) -> Answer:
        """One call, before the job's deadline. `path` may be a URL below the vendor's; `body` is sent as JSON.

        Statuses in `fine` are the caller's; for others refusal() decides. A rate limit is waited for while the wait
        fits the job's time. Raises what refusal() gives, NoToken, TimeoutError, ConnectionError.
        """
        if not self.token:
            raise NoToken(f"{self._variable}_TOKEN")
        target = self._target(path) + (f"?{urlencode(query)}" if query else "")
        sent = {"User-Agent": "paceline", "Accept": "application/json", **self.headers(), **(headers or {})}
        content = None
        if body is not None:
            content, sent["Content-Type"] = msgspec.json.encode(body), "application/json"
        for tries in itertools.count():
            answer = self._once(ctx, method, target, content, sent)
            if redirects and answer.status in _REDIRECTS and (location := answer.headers.get("location")):
                redirects, target = redirects - 1, self._target(urljoin(urljoin(self.url, target), location))
                continue
            if answer.status in fine or (refusal := self.refusal(answer)) is None:
                return answer
            if not isinstance(refusal, RateLimited):
                raise refusal
            wait = max(refusal.retry_after, 0.25 * 2.0**tries)
            if wait >= ctx.remaining() - _MARGIN:
                raise refusal
            time.sleep(wait)
        raise AssertionError("unreachable")

    def _target(self, path: str) -> str:
        """`path` on this vendor's host: its token goes nowhere else, whatever an answer links to."""
        if path.startswith(f"{self.url}/"):
            path = path.removeprefix(self.url)
        if not path.startswith("/"):
            raise ConnectionError(f"{self.vendor}: the answer leads to another place")
        return self._path + path

    def _once(self, ctx: Context, method: str, target: str, content: bytes | None, sent: Mapping[str, str]) -> Answer:
        seconds = min(self.timeout, ctx.remaining() - _MARGIN)
        end = time.monotonic() + seconds
        late = TimeoutError(f"{self.vendor}: no whole answer within {seconds:.1f}s")
        if seconds <= 0:
            raise late
        if self._pool is None or self._pid != os.getpid():  # a connection that came through a fork is not ours to use
            self._pool, self._pid = connections(self.url), os.getpid()
        timer = None
        try:
            response = self._pool.urlopen(
                method,
                target,
                content,
                sent,
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(total=seconds),
                preload_content=False,
                decode_content=False,
            )
            # urllib3's limit is one for each read; a body that drips has as many as it likes.
            timer = threading.Timer(end - time.monotonic(), _shut, [response])
            timer.start()
            body = bytearray()
            while len(body) <= LONGEST and (part := response.read(LONGEST)):
                body += part
            if len(body) > LONGEST:
                response.close()
                raise ConnectionError(f"{self.vendor}: the answer is longer than {LONGEST} bytes")
        except NewConnectionError:  # to urllib3 it is a kind of TimeoutError
            raise ConnectionError(f"{self.vendor}: no connection") from None
        except HTTPError as error:
            if isinstance(error, TimedOut) or time.monotonic() >= end:
                raise late from None
            raise ConnectionError(f"{self.vendor}: broken off ({type(error).__name__})") from None
        finally:
            if timer is not None:
                timer.cancel()
        if time.monotonic() >= end:  # a body of unknown length seems whole when it was shut
            raise late
        return Answer(self.vendor, response.status, response.headers, bytes(body))


def connections(url: str) -> urllib3.HTTPConnectionPool:
    """One connection, kept between calls; none is made yet. Raises ValueError, urllib3's LocationValueError."""
    if not url.startswith(("http://", "https://")):
        raise ValueError("no http(s) URL")
    return urllib3.connection_from_url(url, maxsize=1)


def _shut(response: urllib3.BaseHTTPResponse) -> None:
    with suppress(OSError, RuntimeError, ValueError):  # it has just been read whole
        response.shutdown()
