"""The parent: boots, runs its concerns side by side, and drains. Signal handlers record; the loop acts."""

import asyncio
import gc
import os
import secrets
import select
import signal
import sys
from collections.abc import Awaitable, Callable

from supervisor import sql
from supervisor.args import prepare_decoders
from supervisor.config import Registry, Settings, database_name
from supervisor.errors import PacelineError
from supervisor.log import log
from supervisor.parent.boot import Boot, parent_session
from supervisor.parent.children import Children
from supervisor.parent.clock import Clock
from supervisor.parent.control import Control
from supervisor.parent.forking import HANDLED, Forker
from supervisor.parent.helper import Helpers
from supervisor.parent.listener import Listener
from supervisor.parent.session import UNREACHABLE
from supervisor.parent.standby import StandbyWatch
from supervisor.parent.sweeper import Sweeper
from supervisor.parent.systemd import Systemd
from supervisor.parent.web import Web
from supervisor.scoreboard import Scoreboard
from supervisor.titles import set_title
from supervisor.worker import boottime

REEXEC = "_PACELINE_REEXEC"  # "PID:TOKEN" for the program that this process becomes
TRY_ONLY = "_PACELINE_TRY_ONLY"  # set: load everything, check that it could start, and exit
_CONCERN_RETRY = 5.0  # seconds after a bug in a concern
_LAST_WORDS = 5.0  # seconds at the end for rows and events
_LOAD_LIMIT = 60.0  # seconds for new code to load
_BURST_LOOK = 0.2  # seconds
_WINDOW_LOOK = 1.0  # seconds


def run(settings: Settings, registry: Registry, keep_over_exec: Callable[[], list[int]] = list) -> int:
    """Run the service; its exit code: 0 after a drain, 1 after a forced one. May become new code in place.

    `keep_over_exec` gives descriptors that a re-exec must not close. Raises PacelineError from the boot.
    """
    # From here on a signal waits until the loop can take it: PID 1 would not even be ended by it.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    sql.load_all()
    set_title("parent starting")
    token = _token()
    queues = [worker.queue for worker in registry.workers]
    try:
        board = Scoreboard.create(queues, host=settings.host, token=token, database=database_name(settings.url))
    except OSError as error:
        raise PacelineError(f"the scoreboard: {error}") from None
    try:
        supervisor = Supervisor(settings, registry, board, token, Forker())
        code = asyncio.run(supervisor.run())
    finally:
        board.remove()
    if supervisor.reload:  # also where a job had to be killed for it: a deploy must leave a service behind
        _become_new_code(token, keep_over_exec())
    return code


def _token() -> str:
    """This parent's name among parents: new at each boot, kept when it re-executes itself."""
    pid, _, token = os.environ.pop(REEXEC, "").partition(":")
    return token if pid == str(os.getpid()) else secrets.token_hex(6)


def _become_new_code(token: str, descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.set_inheritable(descriptor, True)
    os.environ[REEXEC] = f"{os.getpid()}:{token}"
    # Blocked, a signal that arrives before the new program listens is pending, not lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    try:
        os.execv(sys.executable, sys.orig_argv)
    except OSError as error:
        raise PacelineError(f"drained, but cannot re-execute {sys.executable}: {error}") from None


class Supervisor:
    def __init__(self, settings: Settings, registry: Registry, board: Scoreboard, token: str, forker: Forker) -> None:
        self.settings, self.registry, self.board = settings, registry, board
        self.helpers = Helpers(forker)
        self.children = Children(settings, registry.workers, board, forker, self.helpers, registry.schedule)
        limits = settings.limits
        # One each, opened when first used, so that none of them waits for another.
        self.sessions = [parent_session(settings, token, self.helpers) for _ in range(5)]
        ear, sweeps, ticks, watch, self._burst_looks = self.sessions
        self.boot = Boot(settings, registry, ear, self.helpers)
        self.listener = Listener(
            ear, self.children, Control(self.children, board), self.helpers, board.header, limits.ping
        )
        self.sweeper = Sweeper(sweeps, self.children, self.helpers, board.header, limits)
        self.clock = Clock(ticks, registry.schedule, self.helpers)
        self.standby = StandbyWatch(watch, self.children, self.helpers)
        self.web = Web(settings.web, settings.url, board, self.helpers, limits.spell) if settings.web else None
        self.systemd = Systemd()
        self.reload = False  # become new code once drained
        self._booted = False
        self._stop_since: float | None = None
        self._stopped = asyncio.Event()  # during the boot
        self._reloading: asyncio.Task[None] | None = None
        self._window: asyncio.Task[None] | None = None

    async def run(self) -> int:
        self._take_signals()
        try:
            return await self._run()
        finally:
            # From here on the loop takes none: one that arrives now waits, for the new code or for ever.
            signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)

    async def _run(self) -> int:
        concerns = [self._tell_that_it_turns, *([self.web.run] if self.web else [])]
        tasks = {asyncio.create_task(_guard(concern, self.helpers)) for concern in concerns}
        try:
            version = await self._boot()
            self._booted = True
            return 0 if version is None else await self._work(version)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _work(self, version: str) -> int:
        # What every child would do first is done once before, in memory that they share.
        prepare_decoders(handler for worker in self.registry.workers for handler in worker.handlers.values())
        gc.collect()
        gc.freeze()  # so that no collection in a child writes to pages that it shares with its siblings
        concerns: list[Callable[[], Awaitable[None]]] = [
            self.listener.run,
            self.sweeper.run,
            self.clock.run,
            self.standby.run,
            self._announce(version),
        ]
        if self.settings.burst:
            concerns.append(self._burst)
        tasks = [asyncio.create_task(_guard(concern, self.helpers)) for concern in concerns]
        try:
            await self.children.run()
        finally:
            for task in tasks:
                task.cancel()
        return await self._last_words()

    # --- boot

    async def _boot(self) -> str | None:
        """Check until the database is there; None if told to stop meanwhile. Raises PacelineError."""
        check = asyncio.create_task(self.boot.check(self.listener.attend))
        stop = asyncio.create_task(self._stopped.wait())
        await asyncio.wait({check, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not self._stopped.is_set():
            return check.result()
        check.cancel()
        await asyncio.wait({check}, timeout=0.1)
        return None

    def _announce(self, version: str) -> Callable[[], Awaitable[None]]:
        async def announce() -> None:
            while not self.children.all_up():
                await asyncio.sleep(0.01)
            count = len(self.children.all)
            where = f" embedded in {self.settings.embedded}" if self.settings.embedded else ""
            queues = f"{count} queue{'s' * (count != 1)}"
            self.board.header.ready = 1
            self.systemd.ready()
            log.info("paceline: ready, %s, pid %d, postgres %s%s", queues, os.getpid(), version, where)

        return announce

    async def _tell_that_it_turns(self) -> None:
        while True:
            if not self._booted:
                self.board.header.turned = boottime()  # from then on the children's loop says so
            self.systemd.turned()
            await asyncio.sleep(1.0)

    # --- signals

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self.children.reap)
        loop.add_signal_handler(signal.SIGTERM, self._on_stop, "SIGTERM")
        loop.add_signal_handler(signal.SIGINT, self._on_stop, "SIGINT")
        if (terminal := _terminal()) is not None:
            # A closed window must not leave a service behind; under nohup the signal stays ignored.
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                loop.add_signal_handler(signal.SIGHUP, self._on_stop, "SIGHUP")
                self._window = loop.create_task(self._watch(terminal))
        else:
            loop.add_signal_handler(signal.SIGHUP, self._on_reload)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)

    async def _watch(self, terminal: int) -> None:
        """The kernel tells the session's leader only of a hang-up, and `make` as such waits for us and tells nobody."""
        poll = select.poll()
        poll.register(terminal, 0)  # nothing but POLLHUP
        while not poll.poll(0):
            await asyncio.sleep(_WINDOW_LOOK)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # that of the leader's end comes late, and is no second signal
        if self._stop_since is None:
            self._on_stop("SIGHUP")

    def _on_stop(self, name: str) -> None:
        now = boottime()
        self.reload = False
        self._stopped.set()
        self.systemd.stopping()
        if self._stop_since is None:
            self._stop_since = now
            log.info("%s: draining", name)
            self.children.drain()
        elif now - self._stop_since > self.settings.limits.second_signal:
            log.warning("%s again: killing what is left", name)
            self.children.force(f"a second {name}")

    def _on_reload(self) -> None:
        if self._reloading is None and self._stop_since is None and not self.reload:
            self._reloading = asyncio.create_task(self._reload())

    async def _reload(self) -> None:
        """Load the new code in a process of its own; only if it loads, drain and become it."""
        log.info("SIGHUP: loading the new code")
        try:
            code, output = await self.helpers.try_command(sys.orig_argv, {TRY_ONLY: "1"}, _LOAD_LIMIT)
        except (TimeoutError, OSError) as error:
            code, output = 1, str(error)
        self._reloading = None
        if self._stop_since is not None:
            return
        if code != 0:
            last = output.splitlines()[-1] if output else f"exit {code}"
            self.helpers.report(f"SIGHUP: the new code does not load, the old stays: {last}")
            return
        log.info("SIGHUP: draining, then re-executing")
        self.reload = True
        self.children.drain()

    # --- the end

    async def _burst(self) -> None:
        """Drain once nothing is left to do in these queues."""
        queues = [child.queue for child in self.children.all]
        while True:
            await asyncio.sleep(_BURST_LOOK)
            try:
                [(left,)] = await self._burst_looks.execute("unfinished", queues=queues)
            except UNREACHABLE:
                continue
            if not left and self.children.all_up():
                self.children.drain()
                return

    async def _last_words(self) -> int:
        """End the rows of killed children, let events leave, close; the exit code."""
        await self.sweeper.end_rows()
        await self.helpers.reported(_LAST_WORDS)
        for session in self.sessions:
            session.drop()
        log.info("paceline: %s", "ended by force" if self.children.forced else "drained")
        return 1 if self.children.forced else 0


async def _guard(concern: Callable[[], Awaitable[None]], helpers: Helpers) -> None:
    """A concern that fails by a bug is reported and started again; no concern takes another along."""
    while True:
        try:
            await concern()
            return
        except Exception as error:  # noqa: BLE001 - the edge around a periodic task
            helpers.report(f"bug in {getattr(concern, '__qualname__', concern)}: {error!r}", error)
        await asyncio.sleep(_CONCERN_RETRY)


def _terminal() -> int | None:
    """A descriptor of this process's controlling terminal, None where it has none."""
    try:
        return os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return None
