"""`paceline check`: whatever is enqueued names a queue and a job that some worker handles, with args it takes.

It asks no database and runs nothing but the registry's own import. Reading is in python.py and sql.py, and gives
places; the verdict on them is here. Imported by its command alone.
"""

import difflib
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from supervisor.args import args_type, decoder_for, encode, function_of
from supervisor.check.python import Module, Reader
from supervisor.check.sql import COMPUTED, Args, Named, Place
from supervisor.check.sql import read as read_sql
from supervisor.config import Registry, build_registry
from supervisor.schedule import Scheduled
from supervisor.worker import Handler

_ENGINE = Path(__file__).resolve().parent.parent  # its statements are what insert() and the clock are made of
_NO_CODE = {"tests", "test", "node_modules", "build", "__pycache__", "site-packages", "dist-packages"}
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py|conftest\.py")
_DECLARED = re.compile(r"(?:#|--)\s*paceline:([^#\n]*)")
_HOW = "write it as a literal or a constant, or declare it on the line: # paceline: QUEUE NAME"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    file: Path
    line: int
    message: str
    warning: bool = False

    def __str__(self) -> str:
        here = Path.cwd()
        shown = self.file.relative_to(here) if self.file.is_relative_to(here) else self.file
        return f"{shown}:{self.line}: {'warning: ' * self.warning}{self.message}"


def check(module: str, root: Path | None, url: str) -> list[Finding]:
    """What is wrong with `module` and the files below `root`, sorted. Raises UsageError where there is no registry."""
    registry = build_registry(module, url)
    home = Path(sys.modules[module].__file__ or "").resolve()
    verdict = _Verdict(registry, home)
    verdict.on_workers(getattr(sys.modules[module], "registry", ()))
    _read_tree((root or _root(module, home)).resolve(), verdict)
    verdict.on_schedule()
    verdict.on_handlers()
    return sorted(set(verdict.findings))


def _root(module: str, home: Path) -> Path:
    """The directory that holds the registry's package; the package's own among installed ones."""
    inside = module.count(".") + (home.name == "__init__.py")
    top = home.parents[inside]
    return home.parents[inside - 1] if inside and top.name in _NO_CODE else top


def _read_tree(root: Path, verdict: "_Verdict") -> None:
    modules: dict[str, Module] = {}
    read: list[tuple[Path, str, Module]] = []
    for file in _files(root):
        try:
            text = file.read_text()
            if file.suffix == ".sql":
                verdict.on_file(file, text, read_sql(text))
                continue
            python = Module(file, _dotted(file, root), text)
        except (SyntaxError, ValueError, OSError) as error:
            verdict.find(file, getattr(error, "lineno", None) or 1, f"not read: {error}")
            continue
        read.append((file, text, python))
        modules[python.name] = python
        top = next(above for above in file.parents if not (above / "__init__.py").exists())
        modules.setdefault(_dotted(file, top), python)  # as others import it, where root is not on sys.path
    reader = Reader(modules)
    for file, text, python in read:
        verdict.on_file(file, text, reader.read(python))


def _dotted(file: Path, root: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _files(root: Path) -> Iterator[Path]:
    """The .py and .sql files of a project: not its tests, whose queues are their own, nor what is installed."""
    for directory, below, names in os.walk(root):
        here = Path(directory)
        below[:] = sorted(
            name
            for name in below
            if not name.startswith(".") and name not in _NO_CODE and not name.endswith(".egg-info")
            if here / name != _ENGINE and not (here / name / "pyvenv.cfg").exists()
        )
        for name in sorted(names):
            if name.endswith((".py", ".sql")) and not _TEST_FILE.fullmatch(name):
                yield here / name


class _Verdict:
    """Collects findings against what the registry's workers handle."""

    def __init__(self, registry: Registry, home: Path) -> None:
        self.findings: list[Finding] = []
        self._registry, self._home = registry, home
        self._handlers = {worker.queue: worker.handlers for worker in registry.workers}
        self._enqueued: set[tuple[str, str]] = set()
        self._entries: dict[tuple[str, str], tuple[Path, int]] = {}

    def find(self, file: Path, line: int, message: str, *, warning: bool = False) -> None:
        self.findings.append(Finding(file, line, " ".join(message.split()), warning))

    def on_workers(self, constructors: Iterable[Any]) -> None:
        """No queue has two, and the args of each handler have a type that can be decoded."""
        if not self._registry.workers:
            self.find(self._home, 1, "no workers")
        count = Counter(worker.queue for worker in self._registry.workers)
        for worker, constructor in zip(self._registry.workers, constructors, strict=True):
            if count[worker.queue] > 1:
                self.find(*self._where(constructor), f"two workers for queue {worker.queue!r}")
            for handler in worker.handlers.values():
                try:
                    args_type(handler)
                except TypeError as error:
                    self.find(*self._where(handler), str(error))

    def on_file(self, file: Path, text: str, places: Iterable[Place]) -> None:
        comments = {
            number: found[1] for number, line in enumerate(text.splitlines(), 1) if (found := _DECLARED.search(line))
        }
        for place in places:
            if place.scheduled:
                self._entries |= {(job.queue, job.name): (file, place.line) for job in place.jobs}
                continue
            declared = [comments[number] for number in range(place.first, place.last + 1) if number in comments]
            if place.wrong:
                self.find(file, place.line, place.wrong)
            if place.unreadable and not declared:
                self.find(file, place.line, f"cannot read {place.unreadable}: {_HOW}")
            for job in (*place.jobs, *self._declared(",".join(declared), file, place.line)):
                self._judge(job, file, place.line)

    def _declared(self, comment: str, file: Path, line: int) -> Iterator[Named]:
        for part in filter(None, map(str.strip, comment.split(","))):
            if len(words := part.split()) == 2:
                yield Named(words[0], words[1], None)
            elif part != "any":
                self.find(
                    file, line, f"`paceline: {part}` declares nothing: QUEUE NAME, or several with commas, or any"
                )

    def on_schedule(self) -> None:
        """The entries as they were built; their lines are those of the calls that name the same."""
        entries: tuple[Any, ...] = self._registry.schedule
        for entry in entries:
            if not isinstance(entry, Scheduled):
                self.find(self._home, 1, f"schedule holds {entry!r:.60}, not a Scheduled")
                continue
            where = self._entries.get((entry.queue, entry.name), (self._home, 1))
            try:
                args = Args(json.loads(encode(entry.args)))
            except ValueError as error:
                self.find(*where, f"args of {entry.name}: {error}")
                args = None
            self._judge(Named(entry.queue, entry.name, args), *where, "schedule: ")

    def on_handlers(self) -> None:
        for queue, handlers in self._handlers.items():
            for name, handler in handlers.items():
                if (queue, name) not in self._enqueued:
                    self.find(*self._where(handler), f"nothing enqueues {name}", warning=True)

    def _judge(self, job: Named, file: Path, line: int, prefix: str = "") -> None:
        self._enqueued.add((job.queue, job.name))
        handlers = self._handlers.get(job.queue)
        if handlers is None:
            self.find(file, line, f"{prefix}no worker for queue {job.queue!r}{_meant(job.queue, self._handlers)}")
        elif job.name not in handlers:
            others = [queue for queue in self._handlers if job.name in self._handlers[queue]]
            meant = f"; queue {others[0]} has" if others else _meant(job.name, handlers)
            self.find(file, line, f"{prefix}queue {job.queue} has no job {job.name!r}{meant}")
        elif job.args is not None:
            for fault in _faults(handlers[job.name], job.args):
                self.find(file, line, f"{prefix}args of {job.name}: {fault}")

    def _where(self, function: Handler) -> tuple[Path, int]:
        code = getattr(function_of(function), "__code__", None)
        return (Path(code.co_filename).resolve(), code.co_firstlineno) if code else (self._home, 1)


def _meant(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, known, 1, cutoff=0.75)  # names of a queue begin alike
    return f"; did you mean {close[0]!r}?" if close else f"; there are: {', '.join(sorted(known))}"


def _faults(handler: Handler, args: Args) -> Iterator[str]:
    """What the handler's type has against these args."""
    try:
        kind: Any = msgspec.inspect.type_info(args_type(handler))
    except TypeError:
        return  # told once, where the handler is
    found = False
    if isinstance(kind, msgspec.inspect.StructType | msgspec.inspect.DataclassType | msgspec.inspect.TypedDictType):
        required = {field.encode_name: field.required for field in kind.fields}
        known = {*required, *filter(None, [getattr(kind, "tag_field", None)])}
        for key in args.values:
            if key not in known:
                found = True
                yield f"no field {key!r}{_meant(str(key), known)}"
        for name in required:
            if required[name] and args.whole and name not in args.values:
                found = True
                yield f"the required field {name!r} is left out"
    if not found and args.whole and COMPUTED not in args.values.values():
        try:
            decoder_for(handler)(encode(args.values))
        except (ValueError, msgspec.MsgspecError) as error:
            yield str(error)
