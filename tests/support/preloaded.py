"""Commands of the CLI in processes that are forked from one that has the program loaded: 20 ms each instead of 400.

Each is a process of its own, with its own environment, descriptors and exit; only the start of the interpreter and
the imports of the engine are shared.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.support.supervised import REGISTRY, ROOT, Paceline, environment

# Reads requests, forks for each, says its exit code. Only the forked command leaves the loop by `break`.
_LOADED = """
import json, os, signal, sys
from supervisor.cli import main

signal.signal(signal.SIGTERM, signal.SIG_DFL)
for line in sys.stdin:
    if (pid := os.fork()) == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    sys.exit()
request = json.loads(line)
for number, (file, flags) in enumerate(request["files"]):
    os.dup2(os.open(file, flags), number)
os.environ.clear()
os.environ.update(request["environment"])
sys.path[:0] = request["environment"]["PYTHONPATH"].split(os.pathsep)
sys.argv = ["paceline", *request["arguments"]]
sys.exit(main())
"""


class Preloaded:
    """Runs commands one after the other."""

    def __init__(self) -> None:
        self._loaded = self._load()

    def _load(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-c", _LOADED],
            cwd=ROOT,
            env=environment(None, extra={"PYTHONUNBUFFERED": ""}),  # as usual; else each print is a write
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def for_database(self, url: str) -> Paceline:
        """What the fixture run_paceline gives, for the database with this URL."""
        default = url

        def run(
            *arguments: str,
            url: str | None = None,
            registry: str = REGISTRY,
            env: Mapping[str, str] | None = None,
            python: str = sys.executable,
            stdin: str = "",
        ) -> subprocess.CompletedProcess[str]:
            assert (python, stdin) == (sys.executable, ""), "that takes an interpreter of its own"
            return self.run(*arguments, environment=environment(url or default, registry, env))

        return run

    def run(
        self, *arguments: str, environment: Mapping[str, str], timeout: float = 30
    ) -> subprocess.CompletedProcess[str]:
        """One command, run to its end; TimeoutExpired where it does not end."""
        assert self._loaded.stdin is not None
        assert self._loaded.stdout is not None
        with tempfile.TemporaryDirectory(dir="/tmp") as directory:
            out, err = Path(directory, "out"), Path(directory, "err")
            write = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            files = [(os.devnull, os.O_RDONLY), (str(out), write), (str(err), write)]
            request = {"arguments": arguments, "environment": dict(environment), "files": files}
            self._loaded.stdin.write(f"{json.dumps(request)}\n")
            self._loaded.stdin.flush()
            ready, _, _ = select.select([self._loaded.stdout], [], [], timeout)
            if not ready:
                self.close()
                self._loaded = self._load()
                raise subprocess.TimeoutExpired(["paceline", *arguments], timeout, out.read_bytes(), err.read_bytes())
            code = int(self._loaded.stdout.readline())
            return subprocess.CompletedProcess(
                ["paceline", *arguments], code, out.read_text(errors="replace"), err.read_text(errors="replace")
            )

    def close(self) -> None:
        if self._loaded.poll() is None:
            os.killpg(self._loaded.pid, signal.SIGKILL)
        with self._loaded:
            pass

    def __enter__(self) -> "Preloaded":
        return self

    def __exit__(
        self, type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
