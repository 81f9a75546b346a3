"""The scoreboard: a memory-mapped file, one slot per queue, that a process's death cannot take along.

The child writes its part before it acts (the job it means to claim, the job it runs, the status it is
about to record), so that whoever comes after a death knows how far it was. The parent writes its own part.
`paceline status` reads the file, also with the database gone. All times are boottime() unless said.
"""

import ctypes
import math
import mmap
import os
import tempfile
import time
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from pathlib import Path

from supervisor.status import FINAL as OUTCOMES

MAGIC = 0x_70_61_63_65_30_30_30_34  # "pace0004": changes with the layout
_PAGE = mmap.PAGESIZE
_READS = 100  # of a slot, until one is whole


class Doing(IntEnum):
    """What a child does. Only WORKING and FINALIZING show a job."""

    STARTING = 0
    CONNECTING = 1  # waits for the database
    STANDBY = 2  # another host holds the lease
    SETTLING = 3  # waits for a row that another host may be running
    IDLE = 4
    WORKING = 5
    FINALIZING = 6
    RESTING = 7  # throttle, or RateLimited
    PAUSED = 8  # a refused token, or an operator
    STOPPING = 9


class Phase(IntEnum):
    """Where a child process stands, as its parent sees it."""

    STARTING = 0
    RUNNING = 1
    BACKOFF = 2
    DRAINING = 3
    STOPPED = 4


class Header(ctypes.Structure):
    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("pid", ctypes.c_int64),
        ("process_started", ctypes.c_uint64),  # ticks since boot: a pid alone may be another process's
        ("slots", ctypes.c_int64),
        ("booted_at", ctypes.c_double),  # by the server's clock: the parent's first look
        ("met_at", ctypes.c_double),  # by the server's clock: it last saw another parent; 0 = never
        ("turned", ctypes.c_double),  # the parent's loop last turned
        ("listening_since", ctypes.c_double),  # by the server's clock, without a break; 0 = not listening
        ("deaf_since", ctypes.c_double),  # 0 = listening
        ("ready", ctypes.c_int64),  # 1: every queue has worked, or stood by, or failed once
        ("draining", ctypes.c_int64),
        ("sweeps", ctypes.c_int64),
        ("swept", ctypes.c_int64),  # rows that sweeps have ended
        ("token", ctypes.c_char * 64),
        ("host", ctypes.c_char * 256),
        ("database", ctypes.c_char * 512),
    )


BUCKETS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 300.0, 1800.0, math.inf)  # seconds, upper bounds


class Histogram(ctypes.Structure):
    _fields_ = (
        ("counts", ctypes.c_int64 * len(BUCKETS)),  # not cumulative
        ("sum", ctypes.c_double),
    )

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds


class ChildPart(ctypes.Structure):
    """Written by the child only (by the next one, once it is dead)."""

    _fields_ = (
        ("sequence", ctypes.c_uint64),  # odd while being written
        ("doing", ctypes.c_int64),
        ("claiming", ctypes.c_int64),  # the row it means to claim, set before the claim is sent; 0 = none
        ("running", ctypes.c_int64),  # the row whose handler began; 0 = none
        ("ended", ctypes.c_int64),  # 1: `result` holds the status of `running`
        ("began", ctypes.c_double),
        ("deadline", ctypes.c_double),
        ("until", ctypes.c_double),  # end of a rest or pause; outlives the child
        ("due", ctypes.c_double),  # when the loop will have turned again, if it is well
        ("turned", ctypes.c_double),
        ("away", ctypes.c_double),  # on time.monotonic(): the database is, since then; one event outlives the child
        ("paused", ctypes.c_int64),  # 1: the rest is a pause, of a refused token
        ("finished", ctypes.c_int64),  # jobs ended since the parent's boot; the rest of this part likewise
        ("outcomes", ctypes.c_int64 * len(OUTCOMES)),
        ("latency", Histogram),
        ("duration", Histogram),
        ("backend", ctypes.c_int64),  # server pid of the lease's session; 0 = none
        ("name", ctypes.c_char * 208),  # of the running job
        ("reason", ctypes.c_char * 128),  # of the rest or pause: `HTTP 401`
        ("holder", ctypes.c_char * 128),  # of the lease that it stands by for
        ("waits_for", ctypes.c_char * 128),  # what it settles, or who has paused it
        ("waits_until", ctypes.c_double),  # the end of that; inf = none in sight
        ("trouble", ctypes.c_char * 256),  # what the database last refused with; empty once it answers
        ("last", ctypes.c_char * 256),  # the last status recorded, cut
        ("result", ctypes.c_char * 8192),  # 2,000 characters of UTF-8
    )


class ParentPart(ctypes.Structure):
    """Written by the parent only."""

    _fields_ = (
        ("phase", ctypes.c_int64),
        ("pid", ctypes.c_int64),  # 0 = none
        ("starts_at", ctypes.c_double),  # of the next start, in BACKOFF
        ("deaths", ctypes.c_int64),  # without a finished job in between
        ("died", ctypes.c_int64),  # deaths since the parent's boot
        ("starts", ctypes.c_int64),
        ("timeout", ctypes.c_double),  # the largest job_timeout that a session of the queue has shown, seconds
        ("cause", ctypes.c_char * 128),  # of the last death: `SIGSEGV`, `exit 3`
        ("interrupted", ctypes.c_char * 256),  # the status for the row that the dead child ran
    )


class Slot(ctypes.Structure):
    _fields_ = (
        ("queue", ctypes.c_char * 64),
        ("parent", ParentPart),
        ("child", ChildPart),
    )


_SLOT_BYTES = -(-ctypes.sizeof(Slot) // _PAGE) * _PAGE
_HEADER_BYTES = -(-ctypes.sizeof(Header) // _PAGE) * _PAGE


def cut(text: str, size: int) -> bytes:
    """`text` in UTF-8, at most size - 1 bytes, no half character."""
    data = text.encode("utf-8", "replace")
    return data if len(data) < size else data[: size - 1].decode("utf-8", "ignore").encode()


class ChildSlot:
    """A queue's slot as its child writes it. The order of the writes is the protocol."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        part = self.part = slot.child
        part.sequence += part.sequence % 2  # its last writer may have died within a write
        self._outcomes, self._latency, self._duration = part.outcomes, part.latency, part.duration
        self._status = ""

    # Each write is between two steps of the sequence. Not by a context manager, which takes as long as the write.

    def turn(self, doing: Doing, now: float, due: float) -> None:
        """The loop turns, and will turn again by `due`."""
        part = self.part
        part.doing, part.turned, part.due = doing, now, due

    def mean_to_claim(self, id: int) -> None:
        self.part.claiming = id

    def begin(self, id: int, name: str, began: float, deadline: float) -> None:
        """The claim was answered: the handler of `id` begins after this."""
        part = self.part
        part.sequence += 1
        part.name, part.began, part.deadline = cut(name, 208), began, deadline
        part.ended = 0
        part.doing = Doing.WORKING
        part.running = id
        part.claiming = 0  # last: until here nothing of the job has begun
        part.sequence += 1

    def end(self, status: str) -> None:
        """The handler has ended; `status` is about to be recorded."""
        part = self.part
        self._status = status
        part.sequence += 1
        part.result = cut(status, 8192)
        part.ended = 1
        part.doing = Doing.FINALIZING
        part.sequence += 1

    def count(self, outcome: str, latency: float, duration: float) -> None:
        """For the metrics: how the running job has ended, and how many seconds it took."""
        self._outcomes[OUTCOMES.index(outcome)] += 1
        self._latency.add(latency)
        self._duration.add(duration)

    def recorded(self, now: float) -> None:
        """The row of the running job is final; the loop turns."""
        part = self.part
        part.sequence += 1
        part.doing, part.turned, part.due = Doing.IDLE, now, now
        part.last = cut(self._status, 256)
        part.running = part.ended = 0
        part.finished += 1
        part.sequence += 1

    def settled(self) -> None:
        """The dead predecessor's row is final."""
        part = self.part
        part.sequence += 1
        part.running = part.ended = 0
        part.sequence += 1

    def trouble(self, text: str) -> None:
        """What the database refuses with; empty once it answers."""
        part = self.part
        part.sequence += 1
        part.trouble = cut(text, 256)
        part.sequence += 1

    def wait_for(self, what: str, until: float) -> None:
        """What this process waits for, beside a rest: nothing that outlives it."""
        part = self.part
        part.sequence += 1
        part.waits_for, part.waits_until = cut(what, 128), until
        part.sequence += 1

    def rest(self, until: float, reason: str, *, paused: bool) -> None:
        part = self.part
        part.sequence += 1
        part.until, part.reason, part.paused = until, cut(reason, 128), paused
        part.sequence += 1


class Scoreboard:
    """The whole file. The parent creates it before the first fork; its children inherit the mapping."""

    def __init__(self, memory: "mmap.mmap", path: Path) -> None:
        self._memory, self.path = memory, path
        self.header = Header.from_buffer(memory)

    @classmethod
    def create(cls, queues: Sequence[str], *, host: str, token: str, database: str) -> "Scoreboard":
        """A new file in the runtime directory. Raises OSError where there is no place for it."""
        path = runtime_directory() / f"{os.getpid()}.scoreboard"
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.truncate(_HEADER_BYTES + len(queues) * _SLOT_BYTES)
            memory = mmap.mmap(file.fileno(), 0)
            board = cls(memory, path)
            header = board.header
            header.pid, header.process_started = os.getpid(), process_started(os.getpid())
            header.slots = len(queues)
            header.host, header.token, header.database = cut(host, 256), cut(token, 64), cut(database, 512)
            for number, queue in enumerate(queues):
                board.slot(number).queue = queue.encode()
            header.magic = MAGIC
            Path(file.name).rename(path)  # whole, or not there
        return board

    def slot(self, number: int) -> Slot:
        return Slot.from_buffer(self._memory, _HEADER_BYTES + number * _SLOT_BYTES)

    def slots(self) -> list[Slot]:
        """Every slot, as it stands now."""
        return [_read_slot(self._memory, number) for number in range(self.header.slots)]

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


class Snapshot:
    """A scoreboard file as it stood at one moment, for `paceline status`."""

    def __init__(self, header: Header, slots: list[Slot]) -> None:
        self.header, self.slots = header, slots


def snapshots() -> list[Snapshot]:
    """The scoreboards of this host's living parents."""
    found = []
    for directory in _directories():
        for path in sorted(directory.glob("*.scoreboard")):
            with suppress(OSError, ValueError):  # being written, removed, or not ours to read
                found.append(_read(path))
    return [shot for shot in found if is_alive(shot.header)]


def _read(path: Path) -> Snapshot:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        header = Header.from_buffer_copy(memory)
        if header.magic != MAGIC:
            raise ValueError("a scoreboard of another version")
        return Snapshot(header, [_read_slot(memory, number) for number in range(header.slots)])


def _read_slot(memory: "mmap.mmap", number: int) -> Slot:
    for tries in range(_READS):
        slot = Slot.from_buffer_copy(memory, _HEADER_BYTES + number * _SLOT_BYTES)
        again = Slot.from_buffer_copy(memory, _HEADER_BYTES + number * _SLOT_BYTES)
        if slot.child.sequence == again.child.sequence and slot.child.sequence % 2 == 0:
            break
        if tries > _READS / 2:
            time.sleep(0.001)  # its writer has no processor: a write takes microseconds
    return slot  # its writer died within a write: the last copy is as good as any


def is_alive(header: Header) -> bool:
    return bool(process_started(header.pid) == header.process_started)


def process_started(pid: int) -> int:
    """When the process began, in clock ticks since boot; 0 if there is none (proc(5), stat field 22)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])


def _directories() -> list[Path]:
    """Where scoreboards may be, the first usable one being where they are made."""
    places = []
    if systemd := os.environ.get("RUNTIME_DIRECTORY"):
        places.append(Path(systemd.split(":")[0]))
    if session := os.environ.get("XDG_RUNTIME_DIR"):
        places.append(Path(session) / "paceline")
    if os.geteuid() == 0:
        places.append(Path("/run/paceline"))
    places.append(Path(tempfile.gettempdir()) / f"paceline-{os.geteuid()}")
    return places


def runtime_directory() -> Path:
    """The directory of this user's scoreboards, made if need be; what dead parents left there is removed."""
    for place in _directories():
        with suppress(OSError):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if place.stat().st_uid == os.geteuid() and not place.is_symlink() and os.access(place, os.W_OK):
                _remove_stale(place)
                return place
    raise OSError("no runtime directory: set XDG_RUNTIME_DIR to a directory of this user's")


def _remove_stale(place: Path) -> None:
    for path in place.glob("*.scoreboard"):
        pid = int(path.stem) if path.stem.isdigit() else 0
        if pid != os.getpid() and not process_started(pid):
            path.unlink(missing_ok=True)
