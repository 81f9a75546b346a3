"""The log: one line per fact on standard error, UTC, as text or as JSON."""

import json
import logging
import time
from collections.abc import Mapping
from typing import Literal

log = logging.getLogger("paceline")

Format = Literal["text", "json"]


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = f"{stamp}.{int(record.msecs):03d}Z {record.levelname} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, object] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["stack"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def start(format: Format) -> None:
    """Send the engine's records to standard error; other loggers' warnings go the same way."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if format == "json" else _Text())
    logging.raiseExceptions = False  # a closed terminal must not become a second error
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    log.setLevel(logging.INFO)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}s"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) and not _bare(value) else str(value)


def _bare(value: str) -> bool:
    return bool(value) and not any(c.isspace() or c in '"=\\' or not c.isprintable() for c in value)


def fields(pairs: Mapping[str, object], *, level: int = logging.INFO) -> None:
    """One line of `key=value`, keys in the order given; floats are seconds. In JSON, keys of the object."""
    quoted = {"status"}
    text = " ".join(
        f"{key}={json.dumps(value, ensure_ascii=False) if key in quoted else _shown(value)}"
        for key, value in pairs.items()
    )
    log.log(level, "%s", text, extra={"fields": pairs})
