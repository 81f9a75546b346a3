"""The registry of the chaos run: ten queues, whose handlers write down outside the database when they began and ended.

Each queue has one book, a file of JSON lines, appended and fsynced: so the order of its lines is the order of what
happened, on all hosts (which are processes of one machine here). Times are CLOCK_BOOTTIME.

A handler that begins looks for every earlier one of its queue that has no end line. If that one's process is alive
at this moment, and has not begun to exit, the two overlap, and it writes that down. So the interval of a handler
without an end line ends where its process does, and what is seen is no guess from timestamps.
"""

import json
import os
import resource
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from supervisor import DB, Context, JobTimeout, RateLimited, Scheduled, Worker, fail, skip
from supervisor.scoreboard import process_started
from supervisor.worker import boottime

BOOKS = "CHAOS_BOOKS"  # in the environment: the directory
POLL_INTERVAL = 5
_TAIL = 65_536  # bytes of the book that a beginning handler looks at: some hundred jobs
_PF_EXITING = 0x4  # include/linux/sched.h: it runs none of its own code any more, and may have closed its files

# What the feeder enqueues to each queue, and each queue's job_timeout.
QUEUES: dict[str, tuple[str, ...]] = {
    "quick-a": ("Quick",),
    "quick-b": ("Quick", "Answer"),
    "tens-a": ("Tens",),
    "tens-b": ("Tens", "Tens", "Answer"),
    "slow": (*("Quick",) * 5, "Tens", "Tens", "Slow"),
    "stubborn": (*("Quick",) * 12, "Tens", "Tens", "Swallow", "Slow"),
    "raises": ("Raise", "Quick"),
    "dies": ("Quick", "Tens", "Quick", "Tens", "Die"),
    "database": ("Database",),
    "mixed": ("Quick", "Tens", "Raise", "Answer", "Database", "Tens", "Quick", "Tens", "Database", "Slow", "Die"),
}
TIMEOUTS = dict.fromkeys(QUEUES, 2.0) | {"slow": 1.0, "stubborn": 1.0, "database": 4.0, "mixed": 1.5}
DEATHS: tuple[str, ...] = ("SIGKILL", "SIGSEGV", "SIGABRT", "exit 3", "exit 0")

# So that a job whose handler began twice cannot go unseen in the database either.
EFFECTS = "CREATE TABLE effects (id bigint PRIMARY KEY)"

# A claim or a finalize takes a millisecond, which few faults hit: so some take longer, before the row changes and
# before the commit.
SLOW_UPDATES = """
CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF random() < 0.15 THEN PERFORM pg_sleep(random() * 0.2); END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER slowly BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION slowly();
CREATE CONSTRAINT TRIGGER slowly_committed AFTER UPDATE ON jobs DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION slowly();
"""


class Args(msgspec.Struct):
    number: int = 0  # the feeder's own
    seconds: float = 0.0
    how: str = ""


class Book:
    """A queue's lines."""

    def __init__(self, queue: str) -> None:
        self._file = Path(os.environ[BOOKS]) / f"{queue}.book"

    def begin(self, ctx: Context) -> None:
        here = {"host": os.environ["HOSTNAME"], "pid": os.getpid(), "born": process_started(os.getpid())}
        self._append({"what": "begin", "id": ctx.job.id, "name": ctx.job.name, "parent": os.getppid(), **here})
        for other in self._unended(ctx.job.id):
            if other["pid"] != os.getpid() and runs(other["pid"], other["born"]):
                self._append({"what": "overlap", "id": ctx.job.id, "other": other["id"]})

    def end(self, ctx: Context, how: str, text: str) -> None:
        try:
            self._append({"what": "end", "id": ctx.job.id, "how": how, "text": text})
        except JobTimeout:  # the line may be there already; the last one counts
            self._append({"what": "end", "id": ctx.job.id, "how": "timeout", "text": ""})
            raise

    def _append(self, line: dict[str, Any]) -> None:
        data = json.dumps({"time": boottime(), **line}).encode() + b"\n"
        fd = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.write(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)

    def _unended(self, id: int) -> list[dict[str, Any]]:
        """The beginnings before this job's that had not ended when it began."""
        with self._file.open("rb") as file:
            file.seek(max(0, self._file.stat().st_size - _TAIL))
            lines = file.read().split(b"\n")
        found: dict[int, dict[str, Any]] = {}
        for line in lines[1 if len(lines) > 1 and not lines[0].startswith(b"{") else 0 : -1]:
            entry = json.loads(line)
            if entry["what"] == "begin":
                if entry["id"] == id:
                    break
                found[entry["id"]] = entry
            elif entry["what"] == "end":
                found.pop(entry["id"], None)
        return list(found.values())


def runs(pid: int, born: int) -> bool:
    """Whether this process can still run code of its own: there, no zombie, not exiting (proc_pid_stat(5))."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return int(fields[19]) == born and fields[0] not in b"ZX" and not int(fields[6]) & _PF_EXITING


def noted(ctx: Context, args: Args, *, work: Callable[..., str], db: DB) -> str:
    """Run `work` between two lines of the book."""
    book = Book(ctx.job.queue)
    try:
        book.begin(ctx)
        answer = work(ctx, args, db)
        book.end(ctx, "returned", answer)
    except JobTimeout:
        book.end(ctx, "timeout", "")
        raise
    except Exception as error:
        book.end(ctx, "raised", str(error))
        raise
    return answer


def quick(ctx: Context, args: Args, db: DB) -> str:
    return "ok"


def sleep(ctx: Context, args: Args, db: DB) -> str:
    """Tens of milliseconds as Tens; as Slow now and then longer than the queue's job_timeout."""
    time.sleep(args.seconds)
    return "ok"


def swallow(ctx: Context, args: Args, db: DB) -> str:
    """Only the kernel ends it, if it is slow enough for that."""
    until = boottime() + args.seconds
    while (left := until - boottime()) > 0:
        try:
            time.sleep(left)
        except BaseException:  # noqa: BLE001 - the fault that this is about
            continue
    return "ok"


def answer(ctx: Context, args: Args, db: DB) -> str:
    return {"fail": fail("no such person"), "skip": skip("nothing to do")}.get(args.how, f"did {args.number}")


def raise_(ctx: Context, args: Args, db: DB) -> str:
    if args.how == "rest":
        raise RateLimited(args.seconds)
    raise RuntimeError(f"fault {args.number}")


def die(ctx: Context, args: Args, db: DB) -> str:
    time.sleep(args.seconds)
    if args.how.startswith("exit"):
        os._exit(int(args.how.split()[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if args.how != "SIGKILL":
        signal.signal(signal.Signals[args.how], signal.SIG_DFL)
    os.kill(os.getpid(), signal.Signals[args.how])
    raise AssertionError("it lives")


def database(ctx: Context, args: Args, db: DB) -> str:
    with db.connection() as connection:
        connection.execute("INSERT INTO effects VALUES (%s)", (ctx.job.id,))
        connection.execute("SELECT pg_sleep(%s)", (args.seconds,))
    return "ok"


WORK: dict[str, Callable[..., str]] = {
    "Quick": quick,
    "Tens": sleep,
    "Slow": sleep,
    "Swallow": swallow,
    "Answer": answer,
    "Raise": raise_,
    "Die": die,
    "Database": database,
}


def new_worker(db: DB, queue: str) -> Worker:
    return Worker(
        queue=queue,
        handlers={name: partial(noted, work=WORK[name], db=db) for name in QUEUES[queue]},
        job_timeout=TIMEOUTS[queue],
        poll_interval=POLL_INTERVAL,
    )


registry: list[Callable[[DB], Worker]] = [partial(new_worker, queue=queue) for queue in QUEUES]
schedule: list[Scheduled] = []
