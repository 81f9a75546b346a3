"""Where the time of a child's jobs goes, taken inside it: for the scenario `profile`, in a process of its own.

It wraps the session's execute, which is the only way from the engine's Python to the server; what is left
of a job is Python: the engine's, the handler's and the log line.
"""

import os
import time
from typing import Any

from supervisor.child.session import Session

TAKE = "BENCH_TIMING"  # set: take the times

_statements: dict[str, list[float]] = {}  # name -> [number, seconds in all]
_since = [time.perf_counter()]


def taken() -> str:
    """One line per statement: its name, how often, seconds in all; first the seconds since the last time."""
    now = time.perf_counter()
    lines = [f"all 1 {now - _since.pop()}\n"]
    lines += [f"{name} {number:.0f} {seconds}\n" for name, (number, seconds) in _statements.items()]
    _since.append(now)
    _statements.clear()
    return "".join(lines)


def _wrap() -> None:
    execute = Session.execute

    def timed(self: Session, name: str, /, *args: Any, **params: Any) -> Any:
        before = time.perf_counter()
        try:
            return execute(self, name, *args, **params)
        finally:
            entry = _statements.setdefault(name, [0, 0.0])
            entry[0] += 1
            entry[1] += time.perf_counter() - before

    Session.execute = timed  # type: ignore[method-assign]


if os.environ.get(TAKE):
    _wrap()
