"""Settings, from flags and the environment, and the registry that they name."""

import importlib
import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from supervisor.db import DB, check_url
from supervisor.errors import UsageError
from supervisor.log import Format
from supervisor.schedule import Scheduled
from supervisor.worker import Worker

OpenSandbox = Callable[[Path | None], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """The engine's constants, in seconds: data, so that a test need not wait for minutes."""

    grace: float = 10  # from a job's deadline to its kernel kill
    settle: float = 5  # looked for other hosts before a row is taken from a dead one
    sweep: float = 300  # between sweeps
    sweep_margin: float = 60  # past the largest timeout in sight
    ping: float = 10  # of silence on the LISTEN connection
    call: float = 5  # for one database call of the parent's
    boot: float = 30  # until a child's code is ready
    turn: float = 60  # past the moment when a child's loop was to turn
    spell: float = 60  # a life this long is healthy, and resets the backoff
    drain_idle: float = 1  # into a drain for a child that shows no job
    second_signal: float = 1  # after the first, "now"
    batch: int = 500  # ids in one fetch
    fresh: float = 1  # seconds for which a fetched batch is worked before the order is looked at anew


@dataclass(frozen=True, slots=True)
class Settings:
    url: str
    registry: str = "queues"
    sentry_dsn: str | None = None
    traces_sample_rate: float = 0.0
    drain_timeout: float | None = None
    web: tuple[str, int] | None = None  # where probes and metrics are served
    log: Format = "text"
    burst: bool = False
    sandbox: bool = False  # the database must be one that the sandbox made; else it must not be
    embedded: str = ""  # where the embedded Postgres lives, for the ready line; empty = DATABASE_URL was set
    host: str = field(default_factory=lambda: os.environ.get("HOSTNAME") or socket.gethostname())
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Registry:
    workers: tuple[Worker, ...]
    schedule: tuple[Scheduled, ...]
    schema: tuple[Path, ...] = ()  # the application's own tables: idempotent SQL that migrate applies

    @property
    def dedupe(self) -> frozenset[str]:
        """The job names that the database dedupes: declared by a worker, or scheduled."""
        declared = {name for worker in self.workers for name in worker.dedupe}
        return frozenset(declared | {entry.name for entry in self.schedule})

    def only(self, queues: Sequence[str]) -> "Registry":
        """The part for `queues`; all of it for none. UsageError for a queue that has no worker."""
        if not queues:
            return self
        known = {worker.queue for worker in self.workers}
        if unknown := [queue for queue in queues if queue not in known]:
            raise UsageError(f"no worker for queue {unknown[0]!r}; the registry has: {', '.join(sorted(known))}")
        return Registry(
            tuple(worker for worker in self.workers if worker.queue in queues),
            tuple(entry for entry in self.schedule if entry.queue in queues),
            self.schema,
        )


def load_registry(module: str, url: str, open_sandbox: OpenSandbox | None = None) -> Registry:
    """Import `module`, build its workers and check them against each other. UsageError in one line.

    `open_sandbox` is called in between, with the program that the module names as `sandbox`.
    """
    registry = build_registry(module, url, open_sandbox)
    _check(module, registry.workers, registry.schedule)
    return registry


def build_registry(module: str, url: str, open_sandbox: OpenSandbox | None = None) -> Registry:
    """The same, but for that check: `paceline check` tells of more than the first fault, each with its line."""
    before = _sockets_and_threads()
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise UsageError(f"no module {module!r}: set PACELINE_REGISTRY to a module on PYTHONPATH") from None
        raise UsageError(f"registry {module}: {_where(error)}") from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"registry {module}: {_where(error)}") from error
    if open_sandbox:
        open_sandbox(getattr(loaded, "sandbox", None))
    workers = tuple(_build(constructor, module, url) for constructor in _list(loaded, "registry"))
    schedule = tuple(_list(loaded, "schedule"))
    schema = tuple(map(Path, getattr(loaded, "schema", ())))
    if _sockets_and_threads() > before:
        raise UsageError(
            f"registry {module}: it opens a connection or starts a thread at import; "
            "children inherit it: open it inside a handler, on first use"
        )
    return Registry(workers, schedule, schema)


def _list(loaded: Any, name: str) -> list[Any]:
    value = getattr(loaded, name, None)
    if not isinstance(value, list | tuple):
        raise UsageError(f"registry {loaded.__name__}: it must define `{name}`, a list")
    return list(value)


def _build(constructor: Any, module: str, url: str) -> Worker:
    name = getattr(constructor, "__module__", "?") + "." + getattr(constructor, "__qualname__", repr(constructor))
    try:
        worker = constructor(DB.for_children(url))
    except (Exception, SystemExit) as error:
        raise UsageError(f"registry {module}: {name}: {_where(error)}") from error
    if not isinstance(worker, Worker):
        raise UsageError(f"registry {module}: {name} returned {type(worker).__name__}, not a Worker")
    return worker


def _check(module: str, workers: Sequence[Worker], schedule: Sequence[Any]) -> None:
    if not workers:
        raise UsageError(f"registry {module}: no workers")
    queues: dict[str, Worker] = {}
    for worker in workers:
        if worker.queue in queues:
            raise UsageError(f"registry {module}: two workers for queue {worker.queue!r}")
        queues[worker.queue] = worker
    for entry in schedule:
        if not isinstance(entry, Scheduled):
            raise UsageError(f"registry {module}: schedule holds {entry!r}, not a Scheduled")
        if entry.queue not in queues or entry.name not in queues[entry.queue].handlers:
            raise UsageError(f"registry {module}: schedule names {entry.queue} {entry.name}, which no worker handles")


def _where(error: BaseException) -> str:
    """`TypeError: message (file.py:12)`, the place being the innermost frame."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})" if trace else ""
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}:{error.lineno})"
        return f"SyntaxError: {error.msg}{place}"
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}"


def _sockets_and_threads() -> int:
    """How many this process has."""
    count = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - Path.iterdir for a count?
    for fd in os.listdir("/proc/self/fd"):  # noqa: PTH208 - as above
        try:
            count += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")  # noqa: PTH115
        except OSError:
            continue
    return count


def database_name(url: str) -> str:
    """The database as the scoreboard and log show it: host, port and name, never the password."""
    parts = conninfo_to_dict(check_url(url))
    host = parts.get("hostaddr") or parts.get("host") or os.environ.get("PGHOST") or "local socket"
    port = parts.get("port") or os.environ.get("PGPORT") or "5432"
    name = parts.get("dbname") or os.environ.get("PGDATABASE") or parts.get("user") or "?"
    return f"{host}:{port}/{name}"


def require_linux() -> None:
    if sys.platform != "linux":
        raise UsageError("paceline runs on Linux (it uses prctl, POSIX timers and /proc); use a container")
