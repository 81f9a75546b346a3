"""A Dockerfile as Docker reads it, and what .dockerignore leaves of a directory; the part of each that ours use.

Whatever else stands there is a ValueError, so that no test passes for what it has not read.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path


@dataclass(frozen=True)
class Instruction:
    word: str
    rest: str

    @property
    def exec_form(self) -> list[str]:
        """The words of `["a", "b"]`. ValueError for the shell's form."""
        words = json.loads(self.rest)
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"{self.word} {self.rest}")
        return words

    @property
    def flags(self) -> dict[str, str]:
        """`--interval=15s` and the like, before the rest."""
        return dict(re.findall(r"--([a-z-]+)=(\S+)", self.rest.partition(" CMD ")[0]))


@dataclass
class Stage:
    base: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, word: str) -> list[Instruction]:
        return [each for each in self.instructions if each.word == word]

    def the(self, word: str) -> Instruction:
        [only] = self.all(word)
        return only

    @property
    def environment(self) -> dict[str, str]:
        return {
            name: value
            for each in self.all("ENV")
            for name, value in (pair.split("=", 1) for pair in each.rest.split())
        }

    @property
    def healthcheck(self) -> list[str]:
        """The command's words."""
        return Instruction("CMD", self.the("HEALTHCHECK").rest.partition(" CMD ")[2]).exec_form


_KNOWN = {"RUN", "COPY", "WORKDIR", "ENV", "USER", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


def stages(file: Path) -> list[Stage]:
    """The stages, ARGs before the first one put in."""
    found: list[Stage] = []
    args: dict[str, str] = {}
    for each in _instructions(file.read_text()):
        if each.word == "ARG" and not found:
            name, _, default = each.rest.partition("=")
            args[name] = default
        elif each.word == "FROM":
            base, _, name = each.rest.partition(" AS ")
            for arg, value in args.items():
                base = base.replace(f"${{{arg}}}", value)
            found.append(Stage(base, name))
        elif each.word in _KNOWN and found:
            found[-1].instructions.append(each)
        else:
            raise ValueError(f"not read by these tests: {each.word} {each.rest}")
    return found


def _instructions(text: str) -> Iterator[Instruction]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        word, _, rest = line.strip().partition(" ")
        yield Instruction(word, re.sub(r" {2,}", " ", rest.strip()))


class Ignored:
    """What a .dockerignore keeps out: of the patterns that match a path or a directory above it, the last counts."""

    def __init__(self, file: Path) -> None:
        lines = [line.strip() for line in file.read_text().splitlines()]
        self._patterns = [line for line in lines if line and not line.startswith("#")]

    def __call__(self, path: str) -> bool:
        ignored = False
        for pattern in self._patterns:
            if _matches(path, pattern.removeprefix("!")):
                ignored = not pattern.startswith("!")
        return ignored


def _matches(path: str, pattern: str) -> bool:
    parts, wanted = path.split("/"), pattern.split("/")
    if wanted[0] == "**":
        return any(fnmatchcase(part, wanted[1]) for part in parts) and len(wanted) == 2
    return len(parts) >= len(wanted) and all(map(fnmatchcase, parts, wanted))
