"""Whether the promises held in a chaos run: a pure function of the evidence.

A row's true status is told by its queue's book. `ok`, or any other text of the handler's, only where the handler
ended so; an interruption only where it had not ended; a timeout only where it reached its deadline.

Where the book shows an end and the row an interruption, one case is allowed, and counted: it was killed after its
handler's end and before its slot said so. A kill of this run's stops the process first and looks at its slot, so that
this is known. Of another death (the parent killed it, or the kernel at its deadline) it is believed if the status
names its cause: its own parent wrote that. Counted apart: its parent was killed, and the slots with it; and its
parent drained with the database away, so that the log has the true status, and the row what another host could guess.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.queues import TIMEOUTS

INTERRUPTED, TIMED_OUT = "err: interrupted", "err: timeout after "
EARLY = (
    1.3  # seconds: a deadline counts from just before the claim is sent, and one that takes over a second is redated
)
AT_ONCE = 1.0  # seconds within which two things go together

KILLED_BEFORE_SLOT = "interrupted, killed after its end and before its slot said so (allowed)"
KILLED_BY_OTHERS = "interrupted, killed after its end by its parent or the kernel, before its slot said so (allowed)"
TOLD = "interrupted, died in a drain with the database away, its true status is in the log"
KILLED_WITH_SLOTS = "interrupted, its parent was killed after its end and before its row said so"

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Feed:
    """What the feeder knows: the numbers that it tried, and the ids that it got for some of them."""

    tried: frozenset[int]
    got: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    rows: Sequence[tuple[Any, ...]]  # id, queue, name, number, status, started_at, finished_at
    effects: set[Any]  # ids whose handler committed in the database
    feed: Feed
    books: Mapping[str, Sequence[Line]]  # by queue
    kills: Sequence[
        tuple[float, int, int, int]
    ] = ()  # of children, by this run: when, pid, born, job ended in the slot
    freezes: Sequence[tuple[float, float, int, int]] = ()  # since, until, pid, born
    killed_parents: Sequence[tuple[float, int]] = ()
    told: Mapping[int, str] = field(default_factory=dict)  # ids and statuses that a parent could only log at its end
    grace: float


@dataclass(slots=True)
class Judgement:
    wrong: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    hosts: Counter[str] = field(default_factory=Counter)
    drained: float = 0.0  # seconds from the last fault to the last job
    last: str = ""  # its queue


@dataclass(slots=True)
class Life:
    """What the book says of one job."""

    begins: list[Line] = field(default_factory=list)
    ends: list[Line] = field(default_factory=list)


def read_book(file: Path) -> list[Line]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def read_feed(file: Path) -> Feed:
    lines = read_book(file)
    tried = {number for line in lines for number in line.get("tried", ())}
    got = {int(number): id for line in lines for number, id in line.get("got", {}).items()}
    return Feed(frozenset(tried), got)


def read_told(log: str) -> dict[int, str]:
    """What a parent could not record at its end: an ERROR line with the id and the status."""
    found = re.findall(r'ERROR queue=\S+ job=\S+ id=(\d+) status=(".*")$', log, re.MULTILINE)
    return {int(id): json.loads(status) for id, status in found}


def judge(evidence: Evidence) -> Judgement:
    found = Judgement()
    found.wrong += _lost(evidence)
    finished = [(row[6], row[1]) for row in evidence.rows if row[6]]
    found.last = max(finished)[1] if finished else ""
    lives: dict[int, Life] = {}
    for queue, book in evidence.books.items():
        found.wrong += _overlaps(queue, book)
        for line in book:
            life = lives.setdefault(line["id"], Life())
            if line["what"] != "overlap":
                (life.begins if line["what"] == "begin" else life.ends).append(line)
    for id in lives.keys() - {row[0] for row in evidence.rows}:
        found.wrong.append(f"job {id} ran, and is not in the table")
    for row in evidence.rows:
        life = lives.get(row[0], Life())
        kind, wrong = _truth(row, life, evidence)
        found.outcomes[kind] += 1
        found.hosts.update(line["host"] for line in life.begins)
        if wrong:
            found.wrong.append(f"job {row[0]} of {row[1]}: {wrong}: {row[4]!r} {row[5]} {row[6]} {life}")
    return found


def _lost(evidence: Evidence) -> Iterable[str]:
    """Enqueued = in the table, once."""
    found: dict[int, int] = {}
    for id, queue, _, number, *_ in evidence.rows:
        if number in found:
            yield f"number {number} is in the table twice: {found[number]} and {id} of {queue}"
        elif number not in evidence.feed.tried:
            yield f"job {id} of {queue} was never enqueued: number {number}"
        found[number] = id
    for number, id in evidence.feed.got.items():
        if found.get(number) != id:
            yield f"job {id}, number {number}, was enqueued and is lost; the table has {found.get(number)}"


def _overlaps(queue: str, book: Sequence[Line]) -> Iterable[str]:
    """Between a beginning and its end line there is no other; and no beginning saw another's process alive."""
    running: Line | None = None
    last = 0
    for line in book:
        if line["what"] == "overlap":
            yield f"{queue}: {line['other']} was running when {line['id']} began"
        elif line["what"] == "begin":
            ends_later = running and any(
                other["id"] == running["id"] and other["time"] > line["time"] for other in _ends(book)
            )
            if running and ends_later:
                yield f"{queue}: {line['id']} began before the end of {running['id']}"
            if line["id"] <= last:
                yield f"{queue}: {line['id']} began after {last}"
            running, last = line, line["id"]
        elif running and line["id"] == running["id"]:
            running = None


def _ends(book: Sequence[Line]) -> list[Line]:
    return [line for line in book if line["what"] == "end"]


def _truth(row: tuple[Any, ...], life: Life, evidence: Evidence) -> tuple[str, str]:
    """What became of a job, for the tally; and what is wrong with its status, if anything."""
    id, queue, name, _, status, *_ = row
    if status in ("pending", "started"):
        return status, "is not final"
    if len(life.begins) > 1:
        return "repeated", "its handler began more than once"
    if life.ends and not life.begins and life.ends[-1]["how"] != "timeout":  # which may come before the first line
        return "mad", "its handler ended without a beginning"
    begin, end = life.begins[0] if life.begins else None, life.ends[-1] if life.ends else None
    if status.startswith(INTERRUPTED):
        if begin is None:
            return "interrupted before it began", ""
        if end is None:
            return "interrupted", ""
        return _after_its_end(status, begin, end, evidence)
    if status.startswith(TIMED_OUT):
        return "timeout", _early(queue, begin, end, evidence)
    if begin is None or end is None:
        return "untrue", "its handler did not end"
    if end["how"] == "returned":
        wrong = "" if status == end["text"] else "its handler answered something else"
        if name == "Database" and id not in evidence.effects:
            wrong = "what its handler committed is not there"
        return status.split(":")[0].split()[0], wrong
    if end["how"] == "raised" and status.startswith("err: ") and status[5:200] == end["text"][:195]:
        return "err: raised", ""
    return "untrue", f"its handler {end['how']}"


def _after_its_end(status: str, begin: Line, end: Line, evidence: Evidence) -> tuple[str, str]:
    # It may have lived a moment longer than its parent.
    if any(pid == begin["parent"] and when >= end["time"] - AT_ONCE for when, pid in evidence.killed_parents):
        return KILLED_WITH_SLOTS, ""
    if begin["id"] in evidence.told and (end["how"] != "returned" or evidence.told[begin["id"]] == end["text"]):
        return TOLD, ""
    said = [ended for _, *process, ended in evidence.kills if process == [begin["pid"], begin["born"]]]
    if begin["id"] in said or (status == INTERRUPTED and not said):
        return "untrue", "interrupted, and its handler had ended"
    return KILLED_BEFORE_SLOT if said else KILLED_BY_OTHERS, ""


def _early(queue: str, begin: Line | None, end: Line | None, evidence: Evidence) -> str:
    """What is wrong with a timeout."""
    if begin is None:
        return ""  # it was frozen, or starved, between its claim and its first line
    deadline = begin["time"] + TIMEOUTS[queue] - EARLY
    if end is not None:
        early = end["time"] < deadline and not _frozen(begin, end["time"], evidence)
        return "it had ended well before its deadline" if early else ""
    if begin["name"] == "Die" and not _frozen(begin, begin["time"], evidence):
        return "it killed itself"
    kills = [when for when, *process, _ in evidence.kills if process == [begin["pid"], begin["born"]]]
    return "it was killed well before its deadline" if any(when < deadline for when in kills) else ""


def _frozen(begin: Line, since: float, evidence: Evidence) -> bool:
    """Whether its process, or its parent, was frozen within a second of `since` or later."""
    return any(
        until >= since and began <= since + AT_ONCE and process == [begin["pid"], begin["born"]]
        for began, until, *process in evidence.freezes
    )
