"""A running service as it is measured: its scoreboard, and what its processes and the server's cost (proc(5))."""

import mmap
import signal
import struct
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from supervisor import scoreboard
from supervisor.scoreboard import ChildPart, Doing, ParentPart, Slot, runtime_directory
from tests.support.processes import Process, process
from tests.support.supervised import Supervised

_POLL = 0.0005  # seconds: what a moment is off by at most


class Board:
    """The scoreboard of a parent that runs, read field by field: quick enough to be polled."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.slots = (len(self._memory) - scoreboard._HEADER_BYTES) // scoreboard._SLOT_BYTES

    def _read(self, slot: int, offset: int) -> int:
        [value] = struct.unpack_from(
            "q", self._memory, scoreboard._HEADER_BYTES + slot * scoreboard._SLOT_BYTES + offset
        )
        return int(value)

    def doing(self, slot: int) -> Doing:
        return Doing(self._read(slot, Slot.child.offset + ChildPart.doing.offset))

    def finished(self, slot: int) -> int:
        return self._read(slot, Slot.child.offset + ChildPart.finished.offset)

    def pid(self, slot: int) -> int:
        return self._read(slot, Slot.parent.offset + ParentPart.pid.offset)

    def all(self, *doing: Doing) -> bool:
        return all(self.doing(slot) in doing for slot in range(self.slots))


class Service:
    def __init__(self, supervised: Supervised) -> None:
        self.supervised = supervised
        self.pid = supervised.pid
        self._board: Board | None = None

    @property
    def board(self) -> Board:
        if self._board is None:
            self._board = Board(runtime_directory() / f"{self.pid}.scoreboard")
        return self._board

    def wait(self, reached: Callable[[], bool], limit: float = 120.0, every: float = _POLL) -> float:
        """Poll until it holds; the moment, on time.monotonic(). SystemExit with the log past `limit`."""
        give_up = time.monotonic() + limit
        while True:
            with suppress(OSError, ValueError):  # no scoreboard yet
                if reached():
                    return time.monotonic()
            if time.monotonic() > give_up or self.supervised.exited() is not None:
                raise SystemExit(f"not within {limit:g} s:\n{self.supervised.describe()}")
            time.sleep(every)

    def wait_idle(self, *doing: Doing) -> float:
        """Until every queue is idle (or does one of these); the moment."""
        wanted = doing or (Doing.IDLE,)
        return self.wait(lambda: self.board.all(*wanted))

    def wait_finished(self, jobs: int) -> None:
        """Until so many jobs have ended since the boot, in all queues together. Asks no database."""
        self.wait(lambda: sum(map(self.board.finished, range(self.board.slots))) >= jobs, 1200, every=0.02)
        self.wait_idle()

    def finished(self) -> int:
        return sum(map(self.board.finished, range(self.board.slots)))

    def kill_tree(self) -> float:
        """The host is gone: all at once, no goodbye. The moment."""
        self.supervised.signal(signal.SIGSTOP)  # or it would restart a child
        tree = [*self.supervised.parent.descendants, self.supervised.parent]
        moment = time.monotonic()
        for each in tree:
            with suppress(ProcessLookupError):
                each.signal(signal.SIGKILL)
        return moment


def processor_seconds(pids: Iterable[int]) -> dict[int, float]:
    """Seconds of a processor that each process has used, all its threads; to the nanosecond, unlike stat."""
    return {pid: sum(map(_run_time, _tasks(pid))) for pid in pids}


def _tasks(pid: int) -> list[Path]:
    with suppress(OSError):
        return list(Path(f"/proc/{pid}/task").iterdir())
    return []


def _run_time(task: Path) -> float:
    with suppress(OSError):
        return int((task / "schedstat").read_text().split()[0]) / 1e9
    return 0.0


def pss(pid: int) -> float:
    """A process's proportional share of memory, in MB: what it shares counts by the number of its sharers."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError("no Pss in smaps_rollup")


def server_processes(backend: int) -> list[Process] | None:
    """The server's processes, found from one backend's pid; None where the server is not on this machine."""
    with suppress(OSError, ProcessLookupError, ValueError, IndexError):
        if Path(f"/proc/{backend}/comm").read_text() == "postgres\n":
            postmaster = int(Path(f"/proc/{backend}/stat").read_text().rpartition(")")[2].split()[1])
            return [process(postmaster), *process(postmaster).children]
    return None
