"""Processes as an operator sees them: read from /proc, as `ps` does, with no help from the engine."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import Signals

# A process may end between the listing and the reading, and other users' are not ours to read.
_UNREADABLE = (FileNotFoundError, ProcessLookupError, PermissionError)


@dataclass(frozen=True, slots=True)
class _Stat:
    """What /proc/PID/stat tells, proc_pid_stat(5)."""

    state: str
    parent: int
    born: int


@dataclass(frozen=True, slots=True)
class Process:
    """One process. Its start time tells it from a later process with the same pid."""

    pid: int
    born: int  # clock ticks since the machine's boot

    @property
    def alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        stat = _stat(self.pid)
        return stat is not None and stat.born == self.born and stat.state not in "ZX"

    @property
    def state(self) -> str:
        """Its letter in `ps`: R, S, D, T when stopped, Z; X when it is gone."""
        stat = _stat(self.pid)
        return stat.state if stat is not None and stat.born == self.born else "X"

    @property
    def title(self) -> str:
        """Its line in `ps`; empty when it is gone."""
        return _title(self.pid) if self.alive else ""

    @property
    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))

    @property
    def children(self) -> "list[Process]":
        return [process for process, stat in _everyone() if stat.parent == self.pid]

    @property
    def descendants(self) -> "list[Process]":
        """Its children, theirs, and so on; a process whose parent has died is in nobody's."""
        by_parent: dict[int, list[Process]] = {}
        for process, stat in _everyone():
            by_parent.setdefault(stat.parent, []).append(process)
        found: list[Process] = []
        unvisited = [self.pid]
        while unvisited:
            born_here = by_parent.get(unvisited.pop(), [])
            found += born_here
            unvisited += [process.pid for process in born_here]
        return found

    def signal(self, signo: Signals) -> None:
        """Raises ProcessLookupError when it is gone."""
        if not self.alive:
            raise ProcessLookupError(f"process {self.pid} is gone")
        os.kill(self.pid, signo)


def process(pid: int) -> Process:
    """The process that has this pid now. Raises ProcessLookupError."""
    stat = _stat(pid)
    if stat is None:
        raise ProcessLookupError(f"no process {pid}")
    return Process(pid, stat.born)


def marked(mark: str, file: Path) -> list[Process]:
    """The living processes that show `mark` in their environment or hold `file` open.

    Two signs, since each is lost in its own way: setproctitle writes the title over the environment,
    and a program that was executed with other streams does not hold the file.
    """
    return [found for found, _ in _everyone() if found.alive and (_shows(found.pid, mark) or _holds(found.pid, file))]


def _everyone() -> Iterator[tuple[Process, _Stat]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (stat := _stat(int(entry.name))):
            yield Process(int(entry.name), stat.born), stat


def _stat(pid: int) -> _Stat | None:
    with suppress(*_UNREADABLE):
        # The second field is the program's name in parentheses, which may hold blanks and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return _Stat(state=fields[0].decode(), parent=int(fields[1]), born=int(fields[19]))
    return None


def _title(pid: int) -> str:
    with suppress(*_UNREADABLE):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip().decode(errors="replace")
    return ""


def _shows(pid: int, mark: str) -> bool:
    with suppress(*_UNREADABLE):
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


def _holds(pid: int, file: Path) -> bool:
    with suppress(*_UNREADABLE):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(*_UNREADABLE):
                if descriptor.readlink() == file:
                    return True
    return False
