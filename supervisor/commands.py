"""What the commands do, one function each; cli.py parses and complains."""

import getpass
import json
import os
from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from supervisor import db, embedded, log, report
from supervisor.args import decoder_for, encode
from supervisor.config import Registry, Settings, load_registry
from supervisor.enqueue import insert
from supervisor.errors import PacelineError, UsageError
from supervisor.migrate import migrate as migrate_table
from supervisor.parent import supervisor
from supervisor.sandbox import Sandbox, claim
from supervisor.schedule import Scheduled, ticks
from supervisor.schema import refuse_gaps
from supervisor.sql import statement

_DAY = 24 * 60  # minutes
_NO_DATABASE = "postgresql:///"  # for building workers where no database is asked


def embedded_home(*, sandbox: bool) -> Path:
    """`.postgres` at the project's root: where the packages are, for a checkout; else the working directory."""
    root = Path(__file__).resolve().parent.parent
    name = ".postgres-sandbox" if sandbox else ".postgres"
    return (root if (root / "pyproject.toml").exists() else Path.cwd()) / name


def database_url(arguments: Namespace, *, make: bool) -> str:
    """The URL given, or the embedded database's: joined if it is there, made if `make`.

    Where it is not to be made and is not there, the sandbox's is taken for the other, and the other way round.
    """
    if arguments.database_url:
        return db.check_url(arguments.database_url)
    home, other = (embedded_home(sandbox=sandbox) for sandbox in (arguments.sandbox, not arguments.sandbox))
    if not make and not embedded.exists(home):
        home = other
    if not make and not embedded.exists(home):
        raise UsageError(
            "no database: set DATABASE_URL, or use `paceline run` or `migrate` once to make an embedded one"
        )
    return embedded.start(home, settings={"max_connections": "300"})  # forty queues, and their handlers' own


def connect(arguments: Namespace) -> psycopg.Connection[Any]:
    """A session for one command."""
    return db.connect(database_url(arguments, make=False), db.session_name("command", arguments.command, ""))


def run(arguments: Namespace) -> int:
    log.start(arguments.log)
    home = embedded_home(sandbox=arguments.sandbox)
    fresh = not arguments.database_url and not embedded.exists(home)
    url = database_url(arguments, make=True)
    if arguments.live and not arguments.sandbox:
        raise UsageError("--live is for --sandbox: without it all vendors are called themselves")
    sandbox = Sandbox(arguments.live) if arguments.sandbox else None
    if sandbox:
        claim(url)
        registry = sandbox.paced(load_registry(arguments.registry, url, sandbox.open))
    else:
        registry = load_registry(arguments.registry, url)
    chosen = registry.only(arguments.queues)
    if fresh or sandbox:
        for line in [*migrate_table(url, dedupe=registry.dedupe), *apply_schema(url, registry)]:
            log.log.info("migrate: %s", line)
    settings = Settings(
        url=url,
        registry=arguments.registry,
        sentry_dsn=None if sandbox else arguments.sentry_dsn,
        traces_sample_rate=arguments.sentry_traces_sample_rate,
        drain_timeout=arguments.drain_timeout,
        web=arguments.web,
        log=arguments.log,
        burst=arguments.burst,
        sandbox=arguments.sandbox,
        embedded="" if arguments.database_url else os.path.relpath(home),
    )
    if os.environ.get(supervisor.TRY_ONLY):
        return _try_out(url, chosen)
    if sandbox:
        sandbox.fill(url)
    report.start(settings.sentry_dsn, settings.traces_sample_rate)
    return supervisor.run(settings, chosen, embedded.held)


def _try_out(url: str, registry: Registry) -> int:
    """For a reload: the new code has loaded; would it start? A database that is not there is not its fault."""
    try:
        with db.connect(url, db.session_name("command", "try", "")) as connection:
            [(facts,)] = connection.execute(statement("check_schema")).fetchall()
    except psycopg.OperationalError:
        return 0
    refuse_gaps(facts, registry.dedupe)
    return 0


def migrate(arguments: Namespace) -> int:
    url = database_url(arguments, make=True)
    registry = load_registry(arguments.registry, url)
    done = migrate_table(url, dedupe=registry.dedupe, upgrade=arguments.upgrade, prune=arguments.prune)
    done += apply_schema(url, registry)
    print("\n".join(done) if done else "up to date")
    return 0


def apply_schema(url: str, registry: Registry) -> list[str]:
    """Apply the application's own SQL files, each in one transaction; a line for each. PacelineError names the file."""
    done = []
    with db.connect(url, db.session_name("command", "schema", "")) as connection:
        for file in registry.schema:
            try:
                with connection.transaction():
                    connection.execute(file.read_bytes(), prepare=False)
            except (psycopg.Error, OSError) as error:
                raise PacelineError(f"{file}: {' '.join(str(error).split())}") from None
            done.append(f"applied {os.path.relpath(file)}")
    return done


def enqueue(arguments: Namespace) -> int:
    registry = load_registry(arguments.registry, arguments.database_url or _NO_DATABASE)
    args = _checked_args(registry, arguments.queue, arguments.name, arguments.args)
    with connect(arguments) as connection:
        print(insert(connection, arguments.queue, arguments.name, args, callsite="paceline enqueue"))
    return 0


def _checked_args(registry: Registry, queue: str, name: str, text: str) -> dict[str, Any]:
    """The args, if some worker handles the job and its handler takes them. UsageError otherwise."""
    known = {worker.queue: worker.handlers for worker in registry.workers}
    if queue not in known:
        raise UsageError(f"no worker for queue {queue!r}; the registry has: {', '.join(sorted(known))}")
    if name not in known[queue]:
        raise UsageError(f"queue {queue} has no job {name!r}; it has: {', '.join(sorted(known[queue]))}")
    try:
        args = json.loads(text)
        if not isinstance(args, dict):
            raise UsageError(f"args must be a JSON object, not {text[:60]}")
        decoder_for(known[queue][name])(encode(args))
    except (ValueError, TypeError, msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"args of {name}: {error}") from None
    return args


def schedule(arguments: Namespace) -> int:
    registry = load_registry(arguments.registry, _NO_DATABASE)
    now = datetime.now(UTC)
    found = [(entry, *_coming(entry, now)) for entry in registry.schedule]
    if arguments.json:
        days = [
            {"queue": entry.queue, "name": entry.name, "args": args, "ticks": [t.isoformat() for t in times]}
            for entry, args, times in found
        ]
        print(json.dumps(days, indent=2))
        return 0
    rows = [("QUEUE", "JOB", "IN 24 H", "NEXT (UTC)")]
    for entry, _, times in found:
        shown = ", ".join(f"{t:%H:%M}" for t in times[:5]) + (" ..." if len(times) > 5 else "")
        rows.append((entry.queue, entry.name, str(len(times)), shown or "not in the coming day"))
    print(table(rows))
    return 0


def check(arguments: Namespace) -> int:
    try:
        from supervisor.check import check as find  # by this command alone: its parser is an extra
    except ModuleNotFoundError as error:
        if error.name != "postgast":
            raise
        raise UsageError("check reads SQL with postgast: pip install 'paceline[check]'") from None
    if arguments.root and not Path(arguments.root).is_dir():
        raise UsageError(f"--root {arguments.root}: no such directory")
    findings = find(arguments.registry, Path(arguments.root) if arguments.root else None, _NO_DATABASE)
    for finding in findings:
        print(finding)
    return int(not all(finding.warning for finding in findings))


def _coming(entry: Scheduled, now: datetime) -> tuple[Any, list[datetime]]:
    """The args as they would be enqueued, and the ticks of the coming day. PacelineError names a failing entry."""
    try:
        return json.loads(encode(entry.args)), list(ticks(entry, now, _DAY))
    except Exception as error:  # noqa: BLE001 - the edge: a predicate is the user's code
        raise PacelineError(f"schedule entry {entry.queue} {entry.name}: {type(error).__name__}: {error}") from None


def person() -> str:
    """Who types this: the account's name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name
        return f"uid {os.getuid()}"


def printable(text: str) -> str:
    """`text` without what a terminal would obey: it may come from a vendor's answer."""
    return "".join(c if c.isprintable() else "�" for c in text)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as left-aligned columns, the first row being the headings."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
