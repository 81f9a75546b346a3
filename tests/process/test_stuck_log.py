"""A reader of the log that has stopped reading: the service goes on, and the log tells later that something is missing.

The log is not the file that the tests of others read: each service here is given another standard error.
"""

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.process.test_logs import LINE
from tests.support.rows import Rows
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually

pytestmark = pytest.mark.slow  # the whole file

LOUD = "tests.support.queues_loud"

# In the place of the interpreter: becomes it, with another standard error.
_OPEN = {
    "socket": "end = socket.socket(socket.AF_UNIX); end.connect({path!r}); error = end.fileno()",
    "pipe": "error = os.open({path!r}, os.O_WRONLY)",
    "terminal": "error = os.open({path!r}, os.O_WRONLY | os.O_NOCTTY)",
}


class Reader:
    """The other end of a standard error. Reads when told to."""

    def __init__(self, kind: str, directory: Path) -> None:
        path = str(directory / "error")
        self._listening: socket.socket | None = None
        self._end = -1
        if kind == "pipe":
            os.mkfifo(path)
            self._end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        elif kind == "terminal":
            self._end, far = os.openpty()
            path = os.ttyname(far)
            os.close(far)
        else:
            self._listening = socket.socket(socket.AF_UNIX)
            self._listening.bind(path)
            self._listening.listen()
        self.program = str(directory / "program")
        opening = _OPEN[kind].format(path=path)
        Path(self.program).write_text(
            f"#!{sys.executable}\nimport os, socket, sys\n{opening}\n"
            "os.dup2(error, 2)\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
        )
        Path(self.program).chmod(0o755)

    def read(self) -> str:
        """All that is there."""
        if self._listening is not None and self._end < 0:
            self._end = self._listening.accept()[0].detach()
        os.set_blocking(self._end, False)
        found = b""
        with suppress(BlockingIOError, OSError):
            while part := os.read(self._end, 65536):
                found += part
        return found.decode().replace("\r\n", "\n")

    def close(self) -> None:
        if self._listening is not None:
            self._listening.close()
        if self._end >= 0:
            os.close(self._end)


@pytest.fixture(params=["pipe", "socket", "terminal"])
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reader]:
    made = Reader(request.param, tmp_path)
    yield made
    made.close()


def test_a_reader_of_the_log_that_has_stopped_stops_neither_parent_nor_queues_and_hears_later_what_it_missed(
    run_supervisor: RunSupervisor, rows: Rows, reader: Reader
) -> None:
    """A terminal after Ctrl-S, a log driver that hangs, a journal that is full: each is another kind of file."""
    sup = run_supervisor("loud", "quick", "crash", registry=LOUD, python=reader.program, ready=False)
    flags = rows.insert("loud", "loud.Flags")
    full = rows.insert("loud", "loud.Log", {"number": 4000})  # more than any of them holds
    eventually(lambda: rows.status(full) == "ok")
    jobs = rows.insert_many(50, "quick", "quick.Ok")
    deaths = rows.insert_many(2, "crash", "crash.Exit")  # which the parent has to log
    eventually(lambda: rows.status(jobs[-1]) == "ok", 5.0)
    eventually(lambda: [rows.status(job) for job in deaths] == ["err: interrupted: exit 3"] * 2, 5.0)
    heard = reader.read()
    assert "line 0 xxx" in heard
    last = rows.insert("quick", "quick.Ok")
    eventually(lambda: rows.status(last) == "ok")

    def all_of_it() -> str:
        nonlocal heard
        heard += reader.read()
        return heard

    eventually(lambda: f"id={last} " in all_of_it())
    assert " WARNING log: " in heard
    assert " lost here, nobody read them\n" in heard
    again = rows.insert("loud", "loud.Flags")
    eventually(lambda: rows.status(again) not in ("pending", "started"))
    assert rows.status(again) == rows.status(flags)  # it blocks others as ever, and nothing was left open
    assert rows.status(flags).startswith("True ")
    rows.insert("loud", "loud.Log", {"number": 4000})
    sup.terminate()
    assert sup.wait(5.0) == 0


def test_a_slow_reader_of_the_log_loses_nothing_and_sees_no_line_torn(
    run_supervisor: RunSupervisor, rows: Rows, tmp_path: Path
) -> None:
    """Two queues write faster than it reads: they wait for it, as ever."""
    reader, heard = Reader("pipe", tmp_path), [""]
    sup = run_supervisor("loud", "quick", registry=LOUD, python=reader.program, ready=False)
    over = threading.Event()

    def read_slowly() -> None:
        while not over.wait(0.005):
            heard.append(reader.read())

    reading = threading.Thread(target=read_slowly)
    reading.start()
    try:
        jobs = [rows.insert("loud", "loud.Log", {"number": 500, "size": 1000}) for _ in range(2)]
        jobs += rows.insert_many(300, "quick", "quick.Ok")
        eventually(lambda: {rows.status(job) for job in jobs} == {"ok"}, 30)
        sup.terminate()
        assert sup.wait() == 0
        eventually(lambda: "paceline: drained\n" in "".join(heard))
    finally:
        over.set()
        reading.join()
        reader.close()
    lines = "".join(heard).rstrip("\n").split("\n")
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert not any(" lost here" in line for line in lines)
    assert sum(" WARNING line " in line for line in lines) == 1000
    assert sum("queue=quick" in line for line in lines) == 300
