"""Handlers that do to their process what no handler should, or what few do: forks, threads, descriptors, signals."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from supervisor import DB, Context, Worker
from tests.support.queues.settings import POLL_INTERVAL

_kept: list[object] = []  # what a handler leaves behind on purpose, out of the collector's reach


class First(msgspec.Struct):
    first: int = 3  # the lowest descriptor to close; 0 closes standard error too


class Seconds(msgspec.Struct):
    seconds: float = 30.0  # how long what was left behind lives


class Size(msgspec.Struct):
    bytes: int = 1_000_000


def new_worker(db: DB) -> Worker:
    return Worker(
        queue="rude",
        handlers={
            "rude.Ok": ok,
            "rude.Asyncio": run_asyncio,
            "rude.Async": asynchronous,
            "rude.Threads": threads,
            "rude.LeaveThread": leave_thread,
            "rude.Subprocess": run_subprocess,
            "rude.LeaveSubprocess": leave_subprocess,
            "rude.Pool": pool,
            "rude.ForkAndForget": fork_and_forget,
            "rude.ForkAndRaise": fork_and_raise,
            "rude.ForkAndSleep": fork_and_sleep,
            "rude.Orphans": orphans,
            "rude.Daemon": daemon,
            "rude.CloseAll": close_all,
            "rude.SwapPipes": swap_pipes,
            "rude.Signals": change_signals,
            "rude.Surroundings": change_surroundings,
            "rude.SystemExit": system_exit,
            "rude.KeyboardInterrupt": keyboard_interrupt,
            "rude.Cancelled": cancelled,
            "rude.Recursion": recursion,
            "rude.CloseStdout": close_stdout,
            "rude.CloseStderr": close_stderr,
            "rude.Print": print_a_lot,
        },
        job_timeout=30,
        poll_interval=POLL_INTERVAL,
    )


def ok(ctx: Context, args: dict[str, Any]) -> str:
    return "ok"


# What is allowed


def run_asyncio(ctx: Context, args: dict[str, Any]) -> str:
    async def both() -> list[str]:
        return list(await asyncio.gather(asyncio.to_thread(str, 1), asyncio.sleep(0.01, "2")))

    return f"ok {asyncio.run(both())}"


async def asynchronous(ctx: Context, args: dict[str, Any]) -> str:
    await asyncio.sleep(0.01)
    return "ok"


def threads(ctx: Context, args: dict[str, Any]) -> str:
    seen: list[int] = []
    started = [threading.Thread(target=seen.append, args=(number,)) for number in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return f"ok {sorted(seen)}"


def run_subprocess(ctx: Context, args: dict[str, Any]) -> str:
    done = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True)
    return f"ok {done.stdout.strip()}"


def pool(ctx: Context, args: dict[str, Any]) -> str:
    # fork, whatever the version's default is: the others start from a fresh interpreter, which is no trouble.
    with multiprocessing.get_context("fork").Pool(2) as workers:
        return f"ok {workers.map(abs, [-1, -2, -3])}"


# What is left behind


def leave_thread(ctx: Context, args: Seconds) -> str:
    """No daemon thread: an ordinary exit of the interpreter would wait for it."""
    threading.Thread(target=time.sleep, args=(args.seconds,)).start()
    return "ok"


def leave_subprocess(ctx: Context, args: Seconds) -> str:
    _kept.append(subprocess.Popen(["sleep", str(args.seconds)]))
    return "ok"


def fork_and_forget(ctx: Context, args: dict[str, Any]) -> str:
    """Both processes return from the handler, to the same code with the same connections."""
    return "the copy's answer" if os.fork() == 0 else "ok"


def fork_and_raise(ctx: Context, args: dict[str, Any]) -> str:
    if os.fork() == 0:
        raise RuntimeError("the copy's error")
    return "ok"


def fork_and_sleep(ctx: Context, args: Seconds) -> str:
    """The copy stays in the group, with every descriptor open."""
    if os.fork() == 0:
        time.sleep(args.seconds)
        os._exit(0)
    return "ok"


def orphans(ctx: Context, args: Seconds) -> str:
    """Grandchildren whose parent ends at once: they fall to the reaper, and end a little later."""
    for _ in range(5):
        if (child := os.fork()) == 0:
            if os.fork() == 0:
                time.sleep(args.seconds)
            os._exit(0)
        os.waitpid(child, 0)
    return "ok"


def daemon(ctx: Context, args: Seconds) -> str:
    """A grandchild in a session of its own: out of the group, so nobody's to kill."""
    if (child := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(args.seconds)
        os._exit(0)
    os.waitpid(child, 0)
    return "ok"


# What is broken


def close_all(ctx: Context, args: First) -> str:
    """Every descriptor that it finds: the database's, the parent's, the selector's."""
    found = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    for descriptor in found:
        if descriptor >= args.first:
            with suppress(OSError):  # the listing's own is closed by now
                os.close(descriptor)
    return "ok"


def swap_pipes(ctx: Context, args: dict[str, Any]) -> str:
    """Every pipe's number becomes another file's; the database's connection and the parent's stay."""
    null = os.open(os.devnull, os.O_RDWR)
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the listing's own is closed by now
            if str(entry.readlink()).startswith("pipe:"):
                os.dup2(null, int(entry.name))
    return "ok"


def change_signals(ctx: Context, args: dict[str, Any]) -> str:
    """Handlers, the mask, the wake-up descriptor and the timers."""
    for signo in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError):  # the C library keeps two for itself
            signal.signal(signo, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    signal.set_wakeup_fd(-1)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return "ok"


def change_surroundings(ctx: Context, args: dict[str, Any]) -> str:
    """The directory, the environment, the mask of new files, the limit of recursion, the module path."""
    os.chdir("/")
    os.environ.clear()
    os.umask(0)
    sys.setrecursionlimit(120)
    sys.path.clear()
    return "ok"


def system_exit(ctx: Context, args: dict[str, Any]) -> str:
    raise SystemExit(7)


def keyboard_interrupt(ctx: Context, args: dict[str, Any]) -> str:
    raise KeyboardInterrupt


def cancelled(ctx: Context, args: dict[str, Any]) -> str:
    """No Exception either."""
    raise asyncio.CancelledError


def recursion(ctx: Context, args: dict[str, Any]) -> str:
    return recursion(ctx, args)


def close_stdout(ctx: Context, args: dict[str, Any]) -> str:
    sys.stdout.close()
    return "ok"


def close_stderr(ctx: Context, args: dict[str, Any]) -> str:
    """Where the log goes."""
    sys.stderr.close()
    return "ok"


def print_a_lot(ctx: Context, args: Size) -> str:
    line = "x" * 99 + "\n"
    for _ in range(args.bytes // len(line)):
        sys.stdout.write(line)
    return "ok"
