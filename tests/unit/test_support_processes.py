"""The `Supervised` of the test support, tried on small programs that stand in for `paceline run`.

They stand in since a sound engine never does what its teardown is there to find.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.processes import process
from tests.support.supervised import ROOT, Supervised, environment
from tests.support.wait import eventually

pytestmark = pytest.mark.slow  # the whole file

# One parent, titled; fork_child(queue) forks a titled child that dies with it. Each test's program follows.
PRELUDE = """
import ctypes, os, signal, subprocess, sys, time
from setproctitle import setproctitle


def say(text):
    print(text, file=sys.stderr, flush=True)

def fork_child(queue, mortal=True):
    if (pid := os.fork()) == 0:
        if mortal:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        os.setsid()
        setproctitle(f"paceline: {queue} idle")
        time.sleep(600)
        os._exit(0)
    return pid

setproctitle("paceline: parent 2 queues")
"""


class RunProgram(Protocol):
    def __call__(self, text: str, *, terminal: bool = False) -> Supervised: ...


@pytest.fixture
def run_program(tmp_path: Path) -> Iterator[RunProgram]:
    started: list[Supervised] = []

    def run(text: str, *, terminal: bool = False) -> Supervised:
        program = tmp_path / f"program-{len(started)}"
        program.write_text(f"#!{sys.executable}\n{PRELUDE}\n{text}")
        program.chmod(0o755)
        # In the place of the interpreter, so that it is called as `program -m supervisor run ...`.
        sup = Supervised(
            ["quick"],
            environment=environment(None),
            flags=["--burst"],
            python=str(program),
            log=program.with_suffix(".log"),
            terminal=terminal,
        )
        started.append(sup)
        return sup

    yield run
    for sup in started:
        sup.expect_traceback = sup.expect_strays = True
        sup.stop(patience=0.0)


def test_it_is_called_as_an_operator_calls_it(run_program: RunProgram) -> None:
    sup = run_program("say(sys.argv[1:]); print('printed')")
    assert sup.wait() == 0
    assert sup.log() == "['-m', 'supervisor', 'run', 'quick', '--burst']\n"
    assert sup.output() == "printed\n"
    sup.stop()


def test_titles_and_children_are_read_as_an_operator_reads_them(run_program: RunProgram) -> None:
    sup = run_program("fork_child('slack'); fork_child('sl'); say('paceline: ready'); time.sleep(600)")
    sup.wait_ready()
    eventually(lambda: sup.titles() == ["paceline: parent 2 queues", "paceline: sl idle", "paceline: slack idle"])
    child = sup.child("sl")
    assert child.title == "paceline: sl idle"
    assert sorted(sup.children()) == ["sl", "slack"]
    assert sup.parent.threads == 1
    child.signal(signal.SIGKILL)
    eventually(lambda: not child.alive)
    with pytest.raises(AssertionError, match="KeyError"):
        sup.child("sl", timeout=0.05)
    sup.stop()
    assert sup.wait() == -signal.SIGTERM


def test_a_program_that_ends_before_it_is_ready_is_told_at_once_with_its_log(run_program: RunProgram) -> None:
    sup = run_program("say('no database'); sys.exit(3)")
    began = time.monotonic()
    with pytest.raises(AssertionError, match=r"(?s)never got ready, exit code 3.*no database"):
        sup.wait_ready()
    assert time.monotonic() - began < 20  # far below wait_ready()'s own limit


def test_a_program_that_does_not_end_is_told_with_its_log(run_program: RunProgram) -> None:
    sup = run_program("say('busy'); time.sleep(600)")
    eventually(sup.log)
    with pytest.raises(AssertionError, match=r"(?s)still running after 0\.1 s.*busy"):
        sup.wait(0.1)


def test_a_program_that_will_not_end_is_killed(run_program: RunProgram) -> None:
    sup = run_program("signal.signal(signal.SIGTERM, signal.SIG_IGN); fork_child('a'); say('deaf'); time.sleep(600)")
    eventually(sup.log)
    child = sup.child("a")
    sup.stop(patience=0.1)
    assert sup.wait() == -signal.SIGKILL
    assert not child.alive


def test_a_frozen_program_is_ended_too(run_program: RunProgram) -> None:
    sup = run_program("say('up'); time.sleep(600)")
    eventually(sup.log)
    sup.signal(signal.SIGSTOP)
    sup.stop()
    assert sup.wait() == -signal.SIGTERM


@pytest.mark.parametrize(
    "leave",
    [
        "fork_child('a', mortal=False)",
        "subprocess.Popen(['sleep', '600'], start_new_session=True, stderr=subprocess.DEVNULL)",
        "if os.fork() == 0: os.setsid(); os.fork() or time.sleep(600)",
    ],
)
def test_a_process_that_outlives_the_parent_is_reported_and_ended(run_program: RunProgram, leave: str) -> None:
    sup = run_program(f"{leave}\nsay('up')\ntime.sleep(600)")
    eventually(lambda: len(sup.left()) >= 2)
    left = [stray for stray in sup.left() if stray.pid != sup.pid]
    with pytest.raises(AssertionError, match="outlived the parent"):
        sup.stop(grace=0.2)
    assert not any(stray.alive for stray in left)


def test_a_traceback_fails_the_test_unless_it_is_expected(run_program: RunProgram) -> None:
    sup = run_program("1 / 0")
    assert sup.wait() == 1
    with pytest.raises(AssertionError, match=r"(?s)a traceback.*ZeroDivisionError"):
        sup.stop()
    sup.expect_traceback = True
    sup.stop()


@pytest.mark.parametrize(
    ("act", "signo"),
    [
        (lambda sup: sup.type(b"\x03"), signal.SIGINT),
        (lambda sup: sup.hang_up(), signal.SIGHUP),
        (lambda sup: sup.signal_group(signal.SIGINT), signal.SIGINT),
    ],
    ids=["ctrl-c", "closed", "group"],
)
def test_a_terminal_sends_its_signals(run_program: RunProgram, act: object, signo: signal.Signals) -> None:
    assert callable(act)
    program = "signal.signal(signal.SIGINT, signal.SIG_DFL); say(f'pid {os.getpid()}'); time.sleep(600)"
    sup = run_program(program, terminal=True)
    eventually(sup.log)
    assert sup.log() == f"pid {sup.pid}\n"
    act(sup)
    assert sup.wait() == -signo
    sup.stop()


def test_the_callers_own_settings_stay_out_and_a_registry_from_outside_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SENTRY_DSN", "DATABASE_URL", "PACELINE_LOG"):
        monkeypatch.setenv(name, "the developer's own")
    made = environment("postgresql:///x", "mine", {"PYTHONPATH": "/elsewhere"}, host="host-b")
    assert "SENTRY_DSN" not in made
    assert "PACELINE_LOG" not in made
    assert made["DATABASE_URL"] == "postgresql:///x"
    assert made["PACELINE_REGISTRY"] == "mine"
    assert made["HOSTNAME"] == "host-b"
    assert made["PYTHONPATH"] == f"/elsewhere:{ROOT}"
    assert "DATABASE_URL" not in environment(None)


def test_a_process_is_told_from_a_zombie() -> None:
    with subprocess.Popen(["sleep", "600"]) as started:
        seen = process(started.pid)
        assert seen.alive
        eventually(lambda: seen.title == "sleep 600")  # before exec it is a copy of this process
        assert seen in process(os.getpid()).children
        seen.signal(signal.SIGKILL)
        eventually(lambda: not seen.alive)  # not waited for yet
        assert seen.title == ""
    with pytest.raises(ProcessLookupError):
        seen.signal(signal.SIGKILL)
    with suppress(ProcessLookupError):
        assert process(started.pid) != seen
