"""The log: one line per fact on standard error, UTC, as text or as JSON. It waits for no reader."""

import json
import logging
import os
import re
import select
import socket
import stat
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache
from typing import Literal

log = logging.getLogger("paceline")

Format = Literal["text", "json"]
Shape = Callable[[str, str, str, Mapping[str, object], str], str]  # stamp, level, message, fields, stack

_PATIENCE = 100  # milliseconds
_BARE = re.compile(r'[^\s"=\\\x00-\x1f\x7f]+')
# What ends a line for some reader, or moves a terminal's cursor: by it a vendor's answer could forge a record.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_json = json.JSONEncoder(ensure_ascii=False, default=str).encode


def _as_text(stamp: str, level: str, message: str, fields: Mapping[str, object], stack: str) -> str:
    """A record is one line; a stack's lines, which a handler may log, are indented."""
    line = f"{stamp} {level} {_one_line(message)}"
    return "\n".join([line, *(f"  {_one_line(each)}" for each in stack.splitlines())]) if stack else line


def _one_line(text: str) -> str:
    return text if text.isprintable() else _CONTROL.sub(lambda control: json.dumps(control[0])[1:-1], text)


def _as_json(stamp: str, level: str, message: str, fields: Mapping[str, object], stack: str) -> str:
    record = {"time": stamp, "level": level, "message": message, **fields}
    return _json(record | {"stack": stack} if stack else record)


class _Stderr(logging.Handler):
    """Standard error, whose reader may have stopped: a terminal after Ctrl-S, a log driver that hangs.

    To wait for it would stop the parent and then every queue. So records are lost instead, and the first one that
    is taken again comes with their number. A reader that is merely slow is given a moment.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self._shape = shape
        self._guard: AbstractContextManager[object] = self.lock or nullcontext()
        self._write = _writer()
        self._second, self._stamp = 0, ""
        self._lost = 0  # since the last one that was taken
        self._torn = False  # of the last one only a part was taken

    def emit(self, record: logging.LogRecord) -> None:
        stack = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n") if record.exc_info else ""
        with suppress(Exception):  # no log line is worth an error
            self._put(record.created, record.levelname, record.getMessage(), getattr(record, "fields", {}), stack)

    def put(self, level: str, message: str, fields: Mapping[str, object]) -> None:
        """A record of the engine's own, without the cost of a LogRecord."""
        try:
            with self._guard:
                self._put(time.time(), level, message, fields, "")
        except Exception:  # noqa: BLE001 - no log line is worth an error
            return

    def _put(self, created: float, level: str, message: str, fields: Mapping[str, object], stack: str) -> None:
        stamp = self._stamped(created)
        text = self._shape(stamp, level, message, fields, stack)
        if self._lost:
            told = self._shape(stamp, "WARNING", f"log: {self._lost} lost here, nobody read them", {}, "")
            text = f"{told}\n{text}"
        whole = left = f"{text}\n".encode("utf-8", "backslashreplace")
        if self._torn:
            whole = left = b"\n" + whole
        while left and (taken := self._take(left, patient=not self._lost)):
            left = left[taken:]
        self._lost = self._lost + 1 if left else 0
        self._torn = bool(left) and (self._torn or left != whole)

    def _stamped(self, created: float) -> str:
        second = int(created)
        if second != self._second:
            self._second, self._stamp = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._stamp}.{int((created - second) * 1000):03d}Z"

    def _take(self, data: bytes, *, patient: bool) -> int:
        """How many bytes standard error takes at once, or within a moment. Raises OSError."""
        try:
            return self._write(data)
        except BlockingIOError:
            poll = select.poll()
            poll.register(2, select.POLLOUT)
        with suppress(BlockingIOError):
            return self._write(data) if patient and poll.poll(_PATIENCE) else 0
        return 0


def _writer() -> Callable[[bytes], int]:
    """write(2) to standard error, that raises BlockingIOError where it would wait."""
    kind = stat.S_IFMT(os.fstat(2).st_mode)
    if kind == stat.S_IFSOCK:  # systemd's journal
        end = socket.socket(fileno=os.dup(2))
        _own.append(end.fileno())
        return lambda data: end.send(data, socket.MSG_DONTWAIT)
    if kind in (stat.S_IFIFO, stat.S_IFCHR):
        # O_NONBLOCK is the open file's, which other programs share: hence one of our own.
        with suppress(PermissionError):  # another user's, after su(1): then it may wait
            own = os.open("/proc/self/fd/2", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            _own.append(own)
            return lambda data: os.write(own, data)
    return lambda data: os.write(2, data)


_own: list[int] = []
_started: list[_Stderr] = []


def descriptors() -> list[int]:
    """What the log is written to, beside standard error: whoever closes descriptors must leave these."""
    return _own


def start(format: Format) -> None:
    """Send the engine's records to standard error; other loggers' warnings go the same way."""
    handler = _Stderr(_as_json if format == "json" else _as_text)
    logging.raiseExceptions = False  # a closed terminal must not become a second error
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    log.setLevel(logging.INFO)
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it warns of each try; who waits for it is told once
    _started[:] = [handler]


@lru_cache(maxsize=100)
def _is_bare(text: str) -> bool:
    """Whether it needs no quotes. Asked of the same names again and again."""
    return _BARE.fullmatch(text) is not None


def _shown(key: str, value: object) -> str:
    if isinstance(value, str):
        return _json(value) if key == "status" or not _is_bare(value) else value
    return str(value)


def fields(pairs: Mapping[str, object], *, level: Literal["INFO", "ERROR"] = "INFO") -> None:
    """One line of `key=value`, keys in the order given. In JSON, keys of the object."""
    _put(level, " ".join([f"{key}={_shown(key, value)}" for key, value in pairs.items()]), pairs)


def job(queue: str, job: str, id: int, status: str, latency: float, duration: float) -> None:
    """The one line of a job that has ended. The same in one expression, since it is written for each; in seconds."""
    text = (
        f"queue={queue} job={job if _is_bare(job) else _json(job)} id={id} status={_json(status)}"
        f" latency={latency:.2f}s duration={duration:.2f}s"
    )
    pairs = {"queue": queue, "job": job, "id": id, "status": status, "latency": latency, "duration": duration}
    _put("INFO", text, pairs)


def _put(level: Literal["INFO", "ERROR"], text: str, pairs: Mapping[str, object]) -> None:
    if _started:
        _started[0].put(level, text, pairs)
    else:
        log.log(logging.getLevelNamesMapping()[level], "%s", text, extra={"fields": pairs})
