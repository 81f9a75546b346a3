"""The log: one line per fact on standard error, UTC, as text or as JSON. It waits for no reader."""

import json
import logging
import os
import re
import select
import socket
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

log = logging.getLogger("paceline")

Format = Literal["text", "json"]

_PATIENCE = 100  # milliseconds
_BARE = re.compile(r'[^\s"=\\\x00-\x1f\x7f]+')  # a text that needs no quotes


# What ends a line for some reader, or moves a terminal's cursor: by it a vendor's answer could forge a record.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class _Text(logging.Formatter):
    """A record is one line; a stack's lines, which a handler may log, are indented."""

    def format(self, record: logging.LogRecord) -> str:
        lines = [f"{_stamp(record)} {record.levelname} {record.getMessage()}"]
        if record.exc_info:
            lines += [f"  {line}" for line in self.formatException(record.exc_info).split("\n")]
        return "\n".join(_CONTROL.sub(lambda control: json.dumps(control[0])[1:-1], line) for line in lines)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _stamp(record),
            "level": record.levelname,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["stack"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def _stamp(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


class _Stderr(logging.Handler):
    """Standard error, whose reader may have stopped: a terminal after Ctrl-S, a log driver that hangs.

    To wait for it would stop the parent and then every queue. So records are lost instead, and the first one that
    is taken again comes with their number. A reader that is merely slow is given a moment.
    """

    _lost = 0  # since the last one that was taken
    _torn = False  # of the last one only a part was taken

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            if self._lost:
                told = {"levelname": "WARNING", "msg": f"log: {self._lost} lost here, nobody read them"}
                text = f"{self.format(logging.makeLogRecord(told))}\n{text}"
            whole = left = f"{self._torn * chr(10)}{text}\n".encode("utf-8", "backslashreplace")
            while left and (taken := _take(left, patient=not self._lost)):
                left = left[taken:]
            self._lost = self._lost + 1 if left else 0
            self._torn = bool(left) and (self._torn or left != whole)
        except Exception:  # noqa: BLE001 - the edge: no log line is worth an error
            self.handleError(record)


def _take(data: bytes, *, patient: bool) -> int:
    """How many bytes standard error takes at once, or within a moment. Raises OSError."""
    with suppress(BlockingIOError):
        return _write(data)
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    with suppress(BlockingIOError):
        return _write(data) if patient and poll.poll(_PATIENCE) else 0
    return 0


def _write(data: bytes) -> int:
    """write(2) that raises BlockingIOError where it would wait."""
    kind = stat.S_IFMT(os.fstat(2).st_mode)
    if kind == stat.S_IFSOCK:  # systemd's journal
        with socket.socket(fileno=os.dup(2)) as end:
            return end.send(data, socket.MSG_DONTWAIT)
    if kind in (stat.S_IFIFO, stat.S_IFCHR):
        # O_NONBLOCK is the open file's, which other programs share: hence one of our own.
        with suppress(PermissionError):  # another user's, after su(1): then it may wait
            own = os.open("/proc/self/fd/2", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            try:
                return os.write(own, data)
            finally:
                os.close(own)
    return os.write(2, data)


def start(format: Format) -> None:
    """Send the engine's records to standard error; other loggers' warnings go the same way."""
    handler = _Stderr()
    handler.setFormatter(_Json() if format == "json" else _Text())
    logging.raiseExceptions = False  # a closed terminal must not become a second error
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    log.setLevel(logging.INFO)
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it warns of each try; who waits for it is told once


def _shown(key: str, value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}s"
    if isinstance(value, str) and (key == "status" or not _BARE.fullmatch(value)):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def fields(pairs: Mapping[str, object], *, level: int = logging.INFO) -> None:
    """One line of `key=value`, keys in the order given; floats are seconds. In JSON, keys of the object."""
    text = " ".join([f"{key}={_shown(key, value)}" for key, value in pairs.items()])
    log.log(level, "%s", text, extra={"fields": pairs})
