"""The log: one line per fact on standard error, UTC, as text or as JSON."""

import json
import logging
import re
import time
from collections.abc import Mapping
from typing import Literal

log = logging.getLogger("paceline")

Format = Literal["text", "json"]

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


def start(format: Format) -> None:
    """Send the engine's records to standard error; other loggers' warnings go the same way."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if format == "json" else _Text())
    logging.raiseExceptions = False  # a closed terminal must not become a second error
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    log.setLevel(logging.INFO)


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
