"""Answers that a well-behaved server never gives: bytes on a socket, and what the clients make of them."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from queues.http import Answer, Client
from supervisor import Context, Job
from supervisor.worker import boottime

Serve = Callable[[bytes], None]


class Raw(Client):
    vendor = "raw"
    default_url = "https://raw.example"

    def headers(self) -> dict[str, str]:
        return {}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """serve(bytes): the answer to the next request, after which the connection is closed."""
    listener = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setenv("RAW_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
    monkeypatch.setenv("RAW_TOKEN", "token")
    threads: list[threading.Thread] = []

    def answer(content: bytes) -> None:
        connection, _ = listener.accept()
        with connection, suppress(ConnectionError):
            connection.recv(65536)
            connection.sendall(content)

    def start(content: bytes) -> None:
        thread = threading.Thread(target=answer, args=[content])
        thread.start()
        threads.append(thread)

    yield start
    for thread in threads:
        thread.join()
    listener.close()


def get() -> Answer:
    context = Context(Job(1, "raw", "raw.Ask", datetime.now(UTC), None), boottime() + 10)
    return Raw().call(context, "GET", "/x?key=planted")


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("content", "body"),
    [
        (OK + b"Content-Length: 4\r\n\r\ntrue", b"true"),
        (OK + b"\r\ntrue", b"true"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\ntr\r\n2\r\nue\r\n0\r\n\r\n", b"true"),
        (OK + b"Content-Length: 0\r\n\r\n", b""),
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\ntrue", b"true"),  # none was asked for
    ],
    ids=["with a length", "until the end", "in chunks", "empty", "not unpacked"],
)
def test_a_body_is_read_whole_however_it_is_framed(content: bytes, body: bytes, serve: Serve) -> None:
    serve(content)
    assert get().body == body


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"planted\r\n\r\n",
        OK + b"Content-Length: 9\r\n\r\nplanted",
        OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\nplanted",
        OK + b"Transfer-Encoding: chunked\r\n\r\n7\r\nplanted\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nplanted\r\n",
        OK + b"X: " + b"planted" * 20_000 + b"\r\n\r\n",
    ],
    ids=[
        "nothing",
        "no HTTP",
        "a cut body",
        "a cut chunk",
        "a last chunk missing",
        "no chunk",
        "a long header",
    ],
)
def test_a_broken_answer_is_one_error_that_says_nothing_of_it(content: bytes, serve: Serve) -> None:
    serve(content)
    with pytest.raises(ConnectionError, match=r"^raw: broken off \(\w+\)$") as raised:
        get()
    assert raised.value.__suppress_context__
