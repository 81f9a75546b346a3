"""What an operator asks of this parent, and its answers. Commands come by NOTIFY, from whichever host."""

import asyncio
import signal
from pathlib import Path

import msgspec

from supervisor import control, status, view
from supervisor.control import Answer, Question
from supervisor.log import log
from supervisor.parent.child_process import ChildProcess
from supervisor.parent.children import Children
from supervisor.scoreboard import Doing, Scoreboard
from supervisor.worker import boottime

_FREEZE_LIMIT = 0.5  # seconds
_LOOK = 0.002  # seconds


class Control:
    def __init__(self, children: Children, board: Scoreboard) -> None:
        self._children, self._board = children, board
        self._token, self._host = board.header.token.decode(), board.header.host.decode()

    async def answer(self, text: str) -> list[tuple[str, str]]:
        """Do what is asked; the answers as (channel, payload). Nobody else's text can make it raise."""
        try:
            question = msgspec.json.decode(text, type=Question)
        except msgspec.MsgspecError as error:
            log.warning("control: not a question: %s", error)
            return []
        answers = [Answer(self._token, self._host, last=True)]
        if question.do == "status":
            queues = [view.of_slot(child.slot) for child in self._children.all]
            answers = control.parts(self._token, self._host, view.of_header(self._board.header), queues)
        elif done := await self._do(question):
            log.warning("control: %s %s by %s: %s", question.do, question.queue or question.id, question.by, done)
            answers = [Answer(self._token, self._host, last=True, done=[done])]
        return [(question.channel, msgspec.json.encode(answer).decode()) for answer in answers]

    async def _do(self, question: Question) -> str:
        """What was done here; empty where it is no concern of this host's."""
        if question.do == "end":
            child = next((child for child in self._children.all if child.slot.child.running == question.id), None)
            return await self._end(child, question) if child else ""
        child = self._children.find(question.queue)
        if child is None or not child.pid:
            return ""
        if question.do == "pause":
            child.wake()  # to find the pause's row
            return ""
        if question.do == "resume":
            if child.doing is not Doing.PAUSED:
                return ""
            if child.slot.child.until > boottime():
                child.signal(signal.SIGTERM)  # of a refused token: a person's stop ends that
            else:
                child.wake()  # an operator's, whose row is over
            return "resumed"
        if question.do == "restart":
            child.signal(signal.SIGTERM)
            return f"restarts once job {child.slot.child.running} has ended" if child.shows_job() else "restarts"
        return f"does not know {question.do!r}: it is another version"

    async def _end(self, child: ChildProcess, question: Question) -> str:
        """Stop the child as at a deadline. Frozen first, so that it is this job, and not the next, that is ended."""
        pid = child.pid
        child.signal(signal.SIGSTOP)
        give_up = asyncio.get_running_loop().time() + _FREEZE_LIMIT
        while _is_running(pid) and asyncio.get_running_loop().time() < give_up:
            await asyncio.sleep(_LOOK)
        slot = child.slot.child
        if child.pid == pid and slot.running == question.id and not slot.ended:
            child.end(status.ended(question.by))
            return f"job {question.id} ended"
        if child.pid == pid:
            child.signal(signal.SIGCONT)
        return f"job {question.id} ended by itself, just now"


def _is_running(pid: int) -> bool:
    """Whether it is neither stopped nor dead (proc(5), stat field 3)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TZX"
    except OSError:
        return False
