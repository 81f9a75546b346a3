"""Questions to every parent of this database: NOTIFY on `jobs_control`, answered on a channel of the asker's own.

A payload takes 8,000 bytes, so an answer may come in parts. This is the asker's side; parent/control.py answers.
"""

import secrets
import time
from typing import Annotated, Any

import msgspec
import psycopg

from supervisor.db import asking
from supervisor.lease import parents
from supervisor.sql import statement
from supervisor.view import ParentView, QueueView

ANSWER_LIMIT = 2.0  # seconds: parents answer within one
_PART = 7_500  # bytes of JSON in one notification
_PATIENCE = 0.05  # seconds of one wait


class Question(msgspec.Struct, frozen=True):
    """What an operator wants of every parent. `do`: status, pause, resume, restart, end."""

    channel: Annotated[str, msgspec.Meta(pattern="^paceline_[0-9a-f]{16}$")]  # for the answers
    do: str
    queue: str = ""
    id: int = 0
    by: str = ""


class Answer(msgspec.Struct, frozen=True):
    """One part of a parent's answer."""

    token: str  # the parent's
    host: str
    last: bool  # no further part follows
    done: list[str] = []  # what it did, in sentences
    parent: ParentView | None = None
    queues: list[QueueView] = []


class Answers(msgspec.Struct):
    parts: list[Answer] = []
    silent: dict[str, str] = {}  # token -> host, of parents that are there and did not answer

    @property
    def done(self) -> list[str]:
        return [f"{part.host}: {line}" for part in self.parts for line in part.done]


def ask(connection: psycopg.Connection[Any], do: str, *, queue: str = "", id: int = 0, by: str = "") -> Answers:
    """Ask every parent, and wait for all of them, ANSWER_LIMIT at most. Raises psycopg.Error."""
    question = Question(f"paceline_{secrets.token_hex(8)}", do, queue, id, by)
    connection.execute(f"LISTEN {question.channel}".encode())
    answers = Answers(silent=parents(asking(connection)))
    connection.execute(statement("ask"), {"question": msgspec.json.encode(question).decode()})
    give_up = time.monotonic() + ANSWER_LIMIT
    while answers.silent and time.monotonic() < give_up:
        for notify in connection.notifies(timeout=_PATIENCE):
            part = msgspec.json.decode(notify.payload, type=Answer)
            answers.parts.append(part)
            if part.last:
                answers.silent.pop(part.token, None)
    connection.execute(f"UNLISTEN {question.channel}".encode())
    return answers


def parts(token: str, host: str, parent: ParentView, queues: list[QueueView]) -> list[Answer]:
    """A parent's view of its queues, in parts that a notification can carry."""
    cut: list[list[QueueView]] = [[]]
    room = _PART
    for queue in queues:
        size = len(msgspec.json.encode(queue))
        if size > room:
            cut.append([])
            room = _PART
        cut[-1].append(queue)
        room -= size + 1
    return [
        Answer(token, host, last=number == len(cut), parent=parent, queues=some)
        for number, some in enumerate(cut, start=1)
    ]
