"""The `paceline` command: flags, environment, exit codes. What each command does is in
commands.py, operate.py and overview.py.

Exit codes: 0 done (for run: drained); 1 it failed, or the drain was forced; 2 usage; 130 interrupted.
Errors are one line that says what to do, on standard error, never a traceback.
"""

import argparse
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

import psycopg

from supervisor import commands, operate, overview
from supervisor.config import require_linux
from supervisor.db import check_url
from supervisor.errors import PacelineError, UsageError

_ENVIRONMENT = """environment (each has a flag):
  DATABASE_URL            libpq URI; unset: an embedded Postgres in .postgres/, made by run and migrate
  PACELINE_REGISTRY       module with `registry` and `schedule` (default: queues)
  PACELINE_DRAIN_TIMEOUT  seconds after which a drain is forced (default: bounded by the jobs' deadlines)
  PACELINE_WEB            HOST:PORT for probes and metrics (default: none)
  PACELINE_LOG            text or json
  SENTRY_DSN              where faults are reported (default: nowhere)
  SENTRY_TRACES_SAMPLE_RATE  share of jobs traced, 0 to 1; above 0 scheduled jobs check in as crons (default: 0)
"""

_CHECK = """Read the schedule, and below the root every call of insert, insert_many and insert_async and all SQL that
writes to jobs: each must name a queue and a job that some worker handles, with args that it takes. No database is
asked and nothing runs but the registry's import. Tests are left out. Exit 1 unless all that is found are warnings.

What is computed is reported too, until a comment on its line says what it may be:

  insert(db, "apollo", name)  # paceline: apollo apollo.IngestCompany, apollo apollo.RefreshPerson
  insert(db, queue, name)     # paceline: any

In SQL: -- paceline: apollo apollo.IngestCompany, anywhere in the statement."""


class _Parser(argparse.ArgumentParser):
    """argparse, with one line for a usage error."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    try:
        try:
            code = _run(argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever read has gone; the flush at exit must not complain
        return 0
    if threading.active_count() > 1:
        os._exit(code)  # a refused registry's thread would be waited for
    return code


def _run(argv: Sequence[str] | None) -> int:
    try:
        require_linux()
        _refuse_other_supervisor()
        arguments = _parser().parse_args(argv)
        if arguments.command == "run":
            # Nothing runs yet, so to be told to stop is to be drained. PID 1 needs a handler to be told at all.
            for signo in (signal.SIGTERM, signal.SIGINT):
                signal.signal(signo, _leave)
        return int(arguments.do(arguments))
    except PacelineError as error:
        return _complain(str(error), error.exit_code)
    except psycopg.errors.UndefinedTable:
        return _complain("the database has no table jobs: run `paceline migrate`", 1)
    except psycopg.Error as error:
        return _complain(f"database: {' '.join(str(error).split())}", 1)
    except KeyboardInterrupt:
        return 130


def _complain(text: str, code: int) -> int:
    print(f"paceline: {text}", file=sys.stderr)
    return code


def _leave(signo: int, frame: FrameType | None) -> None:
    os._exit(0)  # not by an exception, which whatever is being imported could catch


def _refuse_other_supervisor() -> None:
    """PyPI's `supervisor` uses the same import name; installed side by side, the files of the two mix."""
    if importlib.util.find_spec("supervisor.supervisord") is not None:
        raise UsageError("the package `supervisor` from PyPI is installed here too: `pip uninstall supervisor`")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def _share(text: str) -> float:
    try:
        if 0 <= (share := float(text)) <= 1:
            return share
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to 1")


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _duration(text: str) -> float:
    """Seconds: `90s`, `15m`, `1h`, `2d`."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "")
    if not number.isdecimal() or not unit or not 0 < int(number) * _UNITS[unit] < 10**9:
        raise argparse.ArgumentTypeError(f"{text!r}: a duration such as 90s, 15m, 1h, 2d")
    return float(int(number) * _UNITS[unit])


def _id(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not the id of a job")
    return int(text)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: HOST:PORT, such as 127.0.0.1:8080")
    return host.strip("[]"), int(port)


def _log_format(text: str) -> str:
    if text not in ("text", "json"):
        raise argparse.ArgumentTypeError(f"{text!r}: text or json")
    return text


def _parser() -> _Parser:
    environ = os.environ
    database = _Parser(add_help=False)
    database.add_argument("--database-url", metavar="URL", type=check_url, default=environ.get("DATABASE_URL") or None)
    sandbox = _Parser(add_help=False)
    sandbox.add_argument("--sandbox", action="store_true", help="on the database of `run --sandbox`")
    registry = _Parser(add_help=False)
    registry.add_argument("--registry", metavar="MODULE", default=environ.get("PACELINE_REGISTRY") or "queues")
    as_json = _Parser(add_help=False)
    as_json.add_argument("--json", action="store_true", help="for scripts")

    parser = _Parser(
        prog="paceline",
        description="Single-file job queues on Postgres, run by a process supervisor.",
        epilog=_ENVIRONMENT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_subparsers(dest="command", required=True, metavar="COMMAND").add_parser

    run = add(
        "run",
        parents=[database, registry],
        help="run the queues until told to stop",
        description="Run one child process per queue. SIGTERM or Ctrl-C drains: active jobs finish, then exit 0. "
        "A second signal kills what is left: exit 1. SIGHUP loads new code, unless there is a terminal.",
    )
    run.add_argument("queues", nargs="*", metavar="QUEUE", help="only these queues (default: all)")
    run.add_argument(
        "--sandbox",
        action="store_true",
        help="let stand-ins answer for the vendors, in a database of their own; no token is used and nothing reported",
    )
    run.add_argument(
        "--live", action="append", default=[], metavar="VENDOR", help="with --sandbox: call this one itself"
    )
    run.add_argument("--burst", action="store_true", help="drain when nothing is pending")
    run.add_argument(
        "--drain-timeout", type=_seconds, metavar="SECONDS", default=environ.get("PACELINE_DRAIN_TIMEOUT") or None
    )
    run.add_argument(
        "--web",
        type=_address,
        metavar="HOST:PORT",
        default=environ.get("PACELINE_WEB") or None,
        help="serve /livez, /readyz, /healthz and /metrics there",
    )
    run.add_argument("--log", type=_log_format, metavar="FORMAT", default=environ.get("PACELINE_LOG") or "text")
    run.add_argument("--sentry-dsn", metavar="DSN", default=environ.get("SENTRY_DSN"))
    run.add_argument(
        "--sentry-traces-sample-rate",
        type=_share,
        metavar="RATE",
        default=environ.get("SENTRY_TRACES_SAMPLE_RATE") or 0.0,
        help="share of jobs traced, 0 to 1; above 0 scheduled jobs check in as Sentry crons",
    )
    run.set_defaults(do=commands.run)

    migrate = add(
        "migrate",
        parents=[database, registry],
        help="create or update the table jobs",
        description="Create the table, its indexes and its trigger, or bring them up to date. Adopts an existing "
        "table of the older shape. Safe to repeat, and while the service runs.",
    )
    migrate.add_argument("--upgrade", metavar="ZONE", help="change an older table's types; its times are in ZONE")
    migrate.add_argument("--prune", action="store_true", help="also remove dedupe names that no worker declares")
    migrate.set_defaults(do=commands.migrate, sandbox=False)

    enqueue = add("enqueue", parents=[database, sandbox, registry], help="enqueue one job, print its id (0: deduped)")
    enqueue.add_argument("queue", metavar="QUEUE")
    enqueue.add_argument("name", metavar="NAME", help="such as caches.Age")
    enqueue.add_argument("args", metavar="JSON", nargs="?", default="{}", help="an object (default: {})")
    enqueue.set_defaults(do=commands.enqueue)

    status = add(
        "status",
        parents=[database, sandbox, as_json],
        help="what every queue does",
        description="Every queue: its state, process, running job, pending rows and last outcome.",
    )
    status.add_argument("--watch", action="store_true", help="again every two seconds, until Ctrl-C")
    status.set_defaults(do=overview.status)

    health = add(
        "health",
        parents=[database],
        help="whether this host's queues are worked: exit 0, or 1 and why not",
        description="What /healthz answers, without a port; with --live what /livez does, for a container.",
    )
    health.add_argument("--live", action="store_true", help="only whether the parent turns")
    health.set_defaults(do=overview.health)

    schedule = add("schedule", parents=[registry, as_json], help="what the clock enqueues over the coming day")
    schedule.set_defaults(do=commands.schedule)

    check = add(
        "check",
        parents=[registry],
        help="find what enqueues a job that no worker handles",
        description=_CHECK,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument("--root", metavar="DIRECTORY", help="default: the one that holds the registry's package")
    check.set_defaults(do=commands.check)

    _add_operators_commands(add, [database, sandbox])
    return parser


def _add_operators_commands(add: Callable[..., argparse.ArgumentParser], where: list[argparse.ArgumentParser]) -> None:
    yes = _Parser(add_help=False)
    yes.add_argument("--yes", action="store_true", help="do it without a question")

    pause = add(
        "pause",
        parents=where,
        help="claim no more in a queue, on all hosts, also after a deploy",
        description="The running job ends as it will; the next is not claimed until the time is over, or `resume`.",
    )
    pause.add_argument("queue", metavar="QUEUE")
    pause.add_argument("--for", dest="seconds", type=_duration, metavar="DURATION", help="90s, 15m, 1h, 2d")
    pause.add_argument("--reason", metavar="TEXT", help="shown by `status` and `ps`")
    pause.set_defaults(do=operate.pause)

    resume = add("resume", parents=where, help="end a queue's pause, an operator's or a refused token's")
    resume.add_argument("queue", metavar="QUEUE")
    resume.set_defaults(do=operate.resume)

    restart = add("restart", parents=where, help="replace a queue's process, once its job has ended")
    restart.add_argument("queue", metavar="QUEUE")
    restart.set_defaults(do=operate.restart)

    end = add("end", parents=where, help="stop a running job now: it ends as an err")
    end.add_argument("id", metavar="ID", type=_id)
    end.set_defaults(do=operate.end)

    retry = add(
        "retry",
        parents=[*where, yes],
        help="enqueue finished jobs anew, as new rows; print their ids",
        description="Give ids; or --queue and --since, for all that ended so. More than ten are asked about.",
    )
    retry.add_argument("ids", metavar="ID", nargs="*", type=_id)
    retry.add_argument("--queue", metavar="QUEUE")
    retry.add_argument("--outcome", default="err", choices=("ok", "fail", "skip", "err"), help="default: err")
    retry.add_argument("--since", type=_duration, metavar="DURATION", help="ended within 90s, 15m, 1h, 2d")
    retry.set_defaults(do=operate.retry)

    cancel = add("cancel", parents=where, help="end pending jobs without running them")
    cancel.add_argument("ids", metavar="ID", nargs="+", type=_id)
    cancel.set_defaults(do=operate.cancel)

    release = add(
        "release",
        parents=[*where, yes],
        help="declare a queue's host dead: do not wait for its job's deadline",
        description="Rows that a host left `started` are interrupted at once, so that the queue goes on. For a host "
        "that is dead. If it lives and only cannot reach the database, its job and the next run side by side.",
    )
    release.add_argument("queue", metavar="QUEUE")
    release.set_defaults(do=operate.release)
