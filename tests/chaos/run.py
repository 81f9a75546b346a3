"""A chaos run: two hosts, a feeder, a server, and the schedule's faults brought about one after the other.

It only acts, and notes what it did and when; whether the promises held is judged from the evidence by verdict.py.
One thread: what a fault needs undone later stands in the agenda. A blinding that would bring about a known limit,
since a boot takes longer than the schedule thought, waits a little; a boot waits for the end of a blinding. A fault
that finds nobody to strike, or has waited for too long, is left out, and counted.
"""

import heapq
import itertools
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg

from supervisor.migrate import migrate
from supervisor.scoreboard import snapshots
from supervisor.worker import boottime
from tests.chaos import schedule
from tests.chaos.feeder import SESSION, Feeder
from tests.chaos.host import LIMITS, Host
from tests.chaos.queues import EFFECTS, SLOW_UPDATES
from tests.chaos.schedule import MEETING, Fault
from tests.chaos.verdict import Evidence, Judgement, judge, read_book, read_feed, read_told
from tests.support.databases import of_cluster
from tests.support.processes import Process
from tests.support.server import Server
from tests.support.wait import eventually

_TICK = 0.01  # seconds
_SOON = 0.5  # seconds until a blinding is tried again
PATIENCE = 16  # such tries: a boot takes longer than the schedule thought
DRAINED = 180.0  # seconds after the last fault in which every row must become final
LEFT_OUT = "left out"

_ROWS = "SELECT id, queue, name, (args ->> 'number')::int, status, started_at, finished_at FROM jobs ORDER BY id"
_OPEN = "SELECT count(*) FROM jobs WHERE status IN ('pending', 'started')"


class Run:
    """Makes its world in `directory`, on a server that nobody else uses."""

    def __init__(self, directory: Path, server: Server, seed: int) -> None:
        self.directory, self.server = directory, server
        self.url = of_cluster(server.url, "chaos")
        self._ask(server.url, "CREATE DATABASE chaos")
        migrate(self.url, dedupe=frozenset())
        self._ask(self.url, EFFECTS)
        self._ask(self.url, SLOW_UPDATES)
        self.hosts = [Host(name, self.url, directory) for name in ("host-a", "host-b")]
        self.injected: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.kills: list[tuple[float, Process, int]] = []
        self.freezes: list[tuple[float, float, Process]] = []
        self._frozen: dict[Process, float] = {}
        self._server_frozen = False
        self._seen_at = 0.0  # when the last blinding was over
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._seed = seed

    def run(self, seconds: float) -> Judgement:
        """Let it go on for `seconds`, heal everything, wait until the queues are empty, and judge."""
        self._pass_until(lambda: all(host.ready() for host in self.hosts), 60)
        feeder = Feeder(self.url, self.directory / "feeder.book", self._seed)
        try:
            start = boottime()
            for fault in schedule.schedule(self._seed, seconds):
                self._at(start + fault.at, lambda fault=fault: self._bring_about(fault))  # type: ignore[misc]
            self._pass_until(lambda: boottime() >= start + seconds, seconds + 1)
            self._heal()
        finally:
            feeder.stop()
        healed = boottime()
        if not self._pass_until(self._drained, DRAINED):
            self.wrong.append(f"not drained within {DRAINED:g} s of the last fault")
        took = boottime() - healed
        self._end()
        judgement = judge(self._evidence())
        judgement.wrong[:0] = self.wrong
        judgement.drained = took
        return judgement

    def close(self) -> None:
        """End what still runs."""
        for host in self.hosts:
            if host.up():
                host.kill()
                host.life.wait()
            host.relay.close()

    # --- time

    def _at(self, moment: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (moment, next(self._number), act))

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._at(boottime() + seconds, act)

    def _pass_until(self, fact: Callable[[], bool], limit: float) -> bool:
        give_up = boottime() + limit
        while not fact():
            if boottime() > give_up:
                return False
            while self._agenda and self._agenda[0][0] <= boottime():
                heapq.heappop(self._agenda)[2]()
            for host in self.hosts:
                self._attend(host)
            time.sleep(_TICK)
        return True

    def _attend(self, host: Host) -> None:
        """Start it when it is due, and nobody is blinded that it ought to meet."""
        now = boottime()
        if host.starts_at is None:
            if host.life.exited() is not None:
                if wrong := host.note_exit():
                    self.wrong.append(wrong)
                host.starts_at = now + host.pause
        elif now >= host.starts_at and self._all_see():
            host.start()

    def _all_see(self) -> bool:
        return not any(host.blind for host in self.hosts) and boottime() >= self._seen_at + MEETING

    def _all_know_each_other(self) -> bool:
        return self._all_see() and all(host.ready_for() > MEETING for host in self.hosts)

    # --- faults

    def _bring_about(self, fault: Fault, tries: int = PATIENCE) -> None:
        if fault.kind in schedule.BLINDING and not self._all_know_each_other() and tries:
            self._after(_SOON, lambda: self._bring_about(fault, tries - 1))
            return
        done = False
        with suppress(ProcessLookupError, psycopg.OperationalError):
            if fault.kind in schedule.CHILD:
                done = self._strike_child(fault)
            elif fault.kind in schedule.SESSION:
                done = self._strike_session(fault)
            elif fault.kind in schedule.BLINDING:
                done = self._blind(fault)
            elif fault.kind in schedule.BOOT:
                done = self._strike_parent(fault)
            else:
                done = self._strike_server(fault)
        self.injected[fault.kind if done else f"{LEFT_OUT}: {fault.kind}"] += 1
        if done and fault.kind in schedule.OUTAGES and fault.busy:
            # Its handler has ended by then, and cannot say so: what its slot says must last.
            self._after(0.7 * fault.seconds, lambda: self._strike_in_outage(fault))

    def _strike_in_outage(self, fault: Fault) -> None:
        with suppress(ProcessLookupError):
            if child := self._child(fault):
                self._kill(child)
                self.injected["child killed in an outage"] += 1

    def _child(self, fault: Fault) -> Process | None:
        children = [child for host in self.hosts for _, child in sorted(host.children().items())]
        busy = [child for child in children if " id=" in child.title] if fault.busy else []
        holders = busy or [child for child in children if " standby " not in child.title]
        return holders[int(fault.pick * len(holders))] if holders else None

    def _strike_child(self, fault: Fault) -> bool:
        child = self._child(fault)
        if child is None:
            return False
        if fault.kind == "child killed":
            self._kill(child)
        elif fault.kind == "child frozen":
            self._freeze(child, fault.seconds)
        else:
            child.signal(signal.SIGTERM)
        return True

    def _kill(self, child: Process) -> None:
        """Stop it first, so as to know what its slot said at its death."""
        child.signal(signal.SIGSTOP)
        eventually(lambda: child.state not in "RSD")
        shown = [slot.child for shot in snapshots() for slot in shot.slots if slot.parent.pid == child.pid]
        ended = shown[0].running if shown and shown[0].ended else 0
        self.kills.append((boottime(), child, ended))
        child.signal(signal.SIGKILL)

    def _freeze(self, process: Process, seconds: float, then: Callable[[], None] = lambda: None) -> None:
        process.signal(signal.SIGSTOP)
        self._frozen.setdefault(process, boottime())

        def thaw() -> None:
            self._thaw(process)
            then()

        self._after(seconds, thaw)

    def _thaw(self, process: Process) -> None:
        if since := self._frozen.pop(process, None):
            with suppress(ProcessLookupError):
                process.signal(signal.SIGCONT)
            self.freezes.append((since, boottime(), process))

    def _strike_session(self, fault: Fault) -> bool:
        host = self.hosts[fault.host]
        if fault.kind == "connections cut":
            host.relay.cut()
            return True
        if self._server_frozen:
            return False
        pattern, but = {
            "session of a child terminated": ("paceline:%", "paceline:parent/%"),
            "session of a parent terminated": ("paceline:parent/%", ""),
            "session of any kind terminated": ("%", ""),
        }[fault.kind]
        found = self._ask(
            self.url,
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND (application_name LIKE 'paceline%%' OR application_name = %s)"
            " AND application_name LIKE %s AND application_name NOT LIKE %s ORDER BY backend_start",
            SESSION,
            pattern,
            but,
        )
        if not found:
            return False
        self._ask(self.url, "SELECT pg_terminate_backend(%s)", *found[int(fault.pick * len(found))])
        return True

    def _blind(self, fault: Fault) -> bool:
        host = self.hosts[fault.host]
        if not self._all_know_each_other():
            return False
        host.blind = True

        def see() -> None:
            host.relay.cut()  # what has lost bytes would be silent for good
            host.relay.resume()
            self._see(host)

        def deliver() -> None:
            host.relay.resume()
            self._see(host)

        what, _, towards = fault.kind.partition(" towards the ")
        direction = towards or None
        if what == "relay stalled":
            host.relay.stall(direction)  # type: ignore[arg-type]
            self._after(fault.seconds, deliver)
        elif what == "relay dropped":
            host.relay.drop(direction)  # type: ignore[arg-type]
            self._after(fault.seconds, see)
        elif what == "connections cut and refused":
            host.relay.refuse()
            host.relay.cut()
            self._after(fault.seconds, deliver)
        else:
            self._freeze(host.life.parent, fault.seconds, lambda: self._see(host))
        return True

    def _see(self, host: Host) -> None:
        host.blind, self._seen_at = False, boottime()

    def _strike_parent(self, fault: Fault) -> bool:
        first, other = self.hosts[fault.host], self.hosts[1 - fault.host]
        if not first.up():
            return False
        if fault.kind == "parent told to reload":
            if not first.ready() or not self._all_see():
                return False
            first.reload()
            return True
        if fault.kind == "parent told to stop":
            if first.told_to_end:  # a second signal would mean now
                return False
            first.tell_to_stop()
        else:
            first.kill()
        first.pause = fault.seconds
        if fault.kind == "both parents killed" and other.up():
            other.kill()
            other.pause = fault.seconds + fault.later
        return True

    def _strike_server(self, fault: Fault) -> bool:
        if fault.kind == "server frozen":
            self.server.freeze()
            self._server_frozen = True
            self._after(fault.seconds, self._thaw_server)
        elif fault.kind == "server away":
            self.server.stop()
            self._after(fault.seconds, self.server.start)
        else:
            self.server.restart(fault.kind.split()[-1])
        return True

    def _thaw_server(self) -> None:
        self.server.thaw()
        self._server_frozen = False

    # --- the end

    def _heal(self) -> None:
        """Undo what is still to be undone, without waiting for its time."""
        while self._agenda:
            heapq.heappop(self._agenda)[2]()
            time.sleep(_TICK)
        if not self._pass_until(lambda: all(host.ready() for host in self.hosts), 60):
            self.wrong.append(
                f"not up within a minute of the last fault: {[h.name for h in self.hosts if not h.ready()]}"
            )

    def _drained(self) -> bool:
        time.sleep(0.1)
        with suppress(psycopg.OperationalError):
            return self._ask(self.url, _OPEN) == [(0,)]
        return False

    def _end(self) -> None:
        """An ordinary stop, which leaves nothing behind."""
        for host in self.hosts:
            if not host.up():
                self.wrong.append(f"{host.name} is not up at the end: {host.life.log_file}")
                continue
            host.tell_to_stop()
        for host in self.hosts:
            if host.up() and (code := host.life.wait(30)) != 0:
                self.wrong.append(f"{host.name}: exit {code} of the last drain: {host.life.log_file}")
            for life in host.lives:
                try:
                    eventually(lambda life=life: not life.left(), 5)  # type: ignore[misc]
                except AssertionError:
                    self.wrong.append(f"outlived their parent: {[stray.title for stray in life.left()]}")
                for word in ("Traceback", "bug in"):
                    if word in life.log():
                        self.wrong.append(f"{word!r} in {life.log_file}")

    def _evidence(self) -> Evidence:
        return Evidence(
            rows=[*self._ask(self.url, _ROWS)],
            effects={id for (id,) in self._ask(self.url, "SELECT id FROM effects")},
            feed=read_feed(self.directory / "feeder.book"),
            books={file.stem: read_book(file) for file in self.directory.glob("*.book") if file.stem != "feeder"},
            kills=[(when, child.pid, child.born, ended) for when, child, ended in self.kills],
            freezes=[(since, until, frozen.pid, frozen.born) for since, until, frozen in self.freezes],
            killed_parents=[kill for host in self.hosts for kill in host.killed],
            told={id: status for h in self.hosts for life in h.lives for id, status in read_told(life.log()).items()},
            grace=LIMITS["grace"],
        )

    @staticmethod
    def _ask(url: str, statement: str, *params: object) -> list[tuple[object, ...]]:
        with psycopg.connect(url, autocommit=True, connect_timeout=3) as connection:
            cursor = connection.execute(statement.encode(), params or None)
            return cursor.fetchall() if cursor.description else []
