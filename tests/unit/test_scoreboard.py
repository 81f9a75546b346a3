"""The scoreboard file: what one process writes another reads, whoever of the two dies, and when."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervisor.scoreboard import (
    ChildPart,
    ChildSlot,
    Doing,
    Phase,
    Scoreboard,
    Slot,
    Snapshot,
    cut,
    runtime_directory,
    snapshots,
)
from tests.support.supervised import ROOT
from tests.support.wait import eventually

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: gives a directory to another user")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runtime directory. Where root's and others' are, there may be boards of services that run here."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "service"))
    return tmp_path / "service"


@pytest.fixture
def board(place: Path) -> Iterator[Scoreboard]:
    made = Scoreboard.create(["apollo", "github"], host="host-a", token="token", database=str(place))
    yield made
    made.remove()


def seen(place: Path) -> list[int]:
    """The pids of the parents whose boards are seen; of this test's, which its `place` tells from others."""
    return sorted(shot.header.pid for shot in snapshots() if shot.header.database == str(place).encode())


def mine() -> Snapshot:
    """This process's scoreboard, read from its file."""
    [found] = [shot for shot in snapshots() if shot.header.pid == os.getpid()]
    return found


@contextmanager
def another_parent(place: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has a scoreboard, in the first of the directories that this one has."""
    program = (
        "import signal\n"
        "from supervisor.scoreboard import Scoreboard\n"
        f"board = Scoreboard.create(['elsewhere'], host='host-a', token='other', database={str(place)!r})\n"
        "print(board.path, flush=True)\n"
        "signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


# What is written is read


def test_a_new_board_names_its_parent_and_its_queues(board: Scoreboard, place: Path) -> None:
    assert board.path == place / f"{os.getpid()}.scoreboard"
    shot = mine()
    assert (shot.header.host, shot.header.token, shot.header.database) == (b"host-a", b"token", str(place).encode())
    assert (shot.header.slots, shot.header.draining, shot.header.met_at) == (2, 0, 0.0)
    assert [slot.queue for slot in shot.slots] == [b"apollo", b"github"]
    assert [(Doing(slot.child.doing), Phase(slot.parent.phase)) for slot in shot.slots] == [
        (Doing.STARTING, Phase.STARTING)
    ] * 2


def test_the_steps_of_a_job_are_read_as_they_were_written(board: Scoreboard) -> None:
    """The intent to claim stands before the job, the status before the end, and each slot is its queue's own."""
    child = ChildSlot(board.slot(1))

    def steps() -> tuple[int, int, int, bytes, bytes, int]:
        part = mine().slots[1].child
        return part.claiming, part.running, part.ended, part.name, part.result, part.finished

    child.mean_to_claim(8123)
    assert steps() == (8123, 0, 0, b"", b"", 0)
    child.begin(8123, "github.Sync", began=5.0, deadline=305.0)
    assert steps() == (0, 8123, 0, b"github.Sync", b"", 0)
    assert (mine().slots[1].child.began, mine().slots[1].child.deadline) == (5.0, 305.0)
    assert mine().slots[1].child.doing == Doing.WORKING
    child.end("ok: fünf")
    assert steps() == (0, 8123, 1, b"github.Sync", "ok: fünf".encode(), 0)
    assert mine().slots[1].child.doing == Doing.FINALIZING
    child.recorded(7.0)
    assert steps()[1:3] == (0, 0)
    assert (mine().slots[1].child.finished, mine().slots[1].child.last) == (1, "ok: fünf".encode())
    untouched = mine().slots[0].child
    assert (untouched.sequence, untouched.claiming, untouched.finished) == (0, 0, 0)


def test_the_row_of_a_dead_predecessor_is_settled_without_counting_as_finished(board: Scoreboard) -> None:
    ChildSlot(board.slot(0)).begin(7, "apollo.Sync", 0.0, 0.0)
    ChildSlot(board.slot(0)).settled()
    part = mine().slots[0].child
    assert (part.running, part.ended, part.finished) == (0, 0, 0)


def test_a_rest_outlives_the_child_that_began_it(board: Scoreboard) -> None:
    ChildSlot(board.slot(0)).rest(99.0, "HTTP 401", paused=True)
    successor = ChildSlot(board.slot(0))
    assert (successor.part.until, successor.part.reason, successor.part.paused) == (99.0, b"HTTP 401", 1)


def test_the_longest_status_is_kept_whole(board: Scoreboard) -> None:
    """2,000 characters, whatever they are: the row of a killed child is ended with them."""
    text = "🚲" * 2_000
    child = ChildSlot(board.slot(0))
    child.begin(1, "n" * 200, 0.0, 0.0)
    child.end(text)
    part = mine().slots[0].child
    assert part.result.decode() == text
    assert part.name == b"n" * 200
    child.recorded(0.0)
    assert mine().slots[0].child.last.decode() == "🚲" * 63  # 255 bytes hold no more whole ones


@pytest.mark.parametrize(
    ("text", "size", "kept"),
    [("abc", 4, b"abc"), ("abcd", 4, b"abc"), ("aéé", 5, "aé".encode()), ("é", 2, b""), ("\ud800x", 9, b"?x")],
)
def test_a_cut_leaves_no_half_character_and_room_for_the_end(text: str, size: int, kept: bytes) -> None:
    assert cut(text, size) == kept


# Writers that die, writers that write


def test_a_slot_whose_writer_died_within_a_write_is_readable_and_its_successor_mends_it(board: Scoreboard) -> None:
    part = board.slot(0).child
    part.running, part.name = 8123, b"apollo.Sync"
    part.sequence += 1  # odd: being written
    assert mine().slots[0].child.running == 8123
    successor = ChildSlot(board.slot(0))
    assert successor.part.sequence % 2 == 0
    successor.settled()
    assert mine().slots[0].child.sequence % 2 == 0
    assert mine().slots[0].child.running == 0


# Writes jobs as fast as it can, each with a name and a status that tell its id.
WRITER = """
import mmap, sys
from supervisor.scoreboard import ChildSlot, Scoreboard
from pathlib import Path

path = Path(sys.argv[1])
with path.open("r+b") as file:
    child = ChildSlot(Scoreboard(mmap.mmap(file.fileno(), 0), path).slot(0))
id = 0
while True:
    id += 1
    child.begin(id, f"job {id}", float(id), id + 300.0)
    child.end(f"status {id} " + "x" * 1000)
"""


def test_what_is_read_while_it_is_written_is_of_one_moment(board: Scoreboard) -> None:
    """More than a third of the writer's time is within a write. The reader gives up where it is held up there."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(board.path)], cwd=ROOT)
    whole: list[ChildPart] = []

    def enough_were_read() -> bool:
        parts = [mine().slots[0].child for _ in range(200)]
        whole.extend(part for part in parts if part.running and part.sequence % 2 == 0)
        return len({part.sequence for part in parts}) > 10 and len(whole) > 100

    try:
        eventually(enough_were_read, 60)
    finally:
        writer.kill()
        writer.wait()
    for part in whole:
        assert part.name == f"job {part.running}".encode()
        assert (part.began, part.deadline) == (part.running, part.running + 300)
        assert not part.ended or part.result.startswith(f"status {part.running} ".encode())


# Parents that live, and parents that do not


def test_every_living_parent_of_this_host_is_seen_and_no_dead_one(board: Scoreboard, place: Path) -> None:
    with another_parent(place) as other:
        assert seen(place) == sorted([os.getpid(), other.pid])
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert (place / f"{other.pid}.scoreboard").exists()
        assert seen(place) == [os.getpid()]


def test_a_later_process_with_the_same_pid_is_not_taken_for_the_parent(board: Scoreboard, place: Path) -> None:
    board.header.process_started += 1
    assert seen(place) == []


def test_a_new_board_removes_the_files_of_dead_parents_and_leaves_those_of_the_living(place: Path) -> None:
    with another_parent(place) as dead:
        dead.kill()
    with another_parent(place) as living:
        board = Scoreboard.create(["apollo"], host="host-a", token="token", database="")
        assert sorted(file.name for file in place.iterdir()) == sorted(
            [f"{os.getpid()}.scoreboard", f"{living.pid}.scoreboard"]
        )
        board.remove()
    assert not board.path.exists()


def test_what_is_no_scoreboard_is_passed_over(board: Scoreboard, place: Path) -> None:
    """An empty file, a short one, one of another version, one that cannot be read."""
    whole = board.path.read_bytes()
    (place / "1.scoreboard").touch()
    (place / "2.scoreboard").write_bytes(whole[:5_000])
    (place / "3.scoreboard").write_bytes(b"\0" * len(whole))
    (place / "4.scoreboard").symlink_to(place / "nowhere")
    assert seen(place) == [os.getpid()]


# Where they are


def test_the_directory_is_of_the_user_alone(place: Path) -> None:
    assert runtime_directory() == place
    assert place.stat().st_mode & 0o777 == 0o700


def test_boards_in_every_place_of_the_user_are_seen(
    board: Scoreboard, place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A service's directory, and the one of a person's own session."""
    monkeypatch.delenv("RUNTIME_DIRECTORY")
    with another_parent(place) as other:
        assert (tmp_path / "user/paceline" / f"{other.pid}.scoreboard").exists()
        assert seen(place) == [other.pid]
        monkeypatch.setenv("RUNTIME_DIRECTORY", str(place))
        assert seen(place) == sorted([os.getpid(), other.pid])


@needs_root
def test_the_directory_of_another_user_is_not_used(place: Path, tmp_path: Path) -> None:
    place.mkdir()
    os.chown(place, 65534, 65534)
    assert runtime_directory() == tmp_path / "user/paceline"


def test_a_link_to_a_directory_is_not_used(place: Path, tmp_path: Path) -> None:
    """It may lead to a place that another user can write to."""
    (tmp_path / "elsewhere").mkdir()
    place.symlink_to(tmp_path / "elsewhere")
    assert runtime_directory() == tmp_path / "user/paceline"


def test_a_slot_has_room_for_the_longest_names(board: Scoreboard) -> None:
    """40 characters of a queue's name, 200 bytes of a job's."""
    slot = Slot()
    slot.queue = b"q" * 40
    slot.child.name = b"n" * 200
    assert (slot.queue, slot.child.name) == (b"q" * 40, b"n" * 200)
