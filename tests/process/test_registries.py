"""Registries that `run` refuses at boot: one line that names the module, the place and the rule; exit code 2."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.test_commands import NOWHERE, refused
from tests.support.preloaded import Preloaded
from tests.support.supervised import Paceline, RunSupervisor
from tests.support.wait import eventually

GOOD = """
import os, threading, time
import psycopg, psycopg_pool
from supervisor import DB, Scheduled, Worker

def ok(ctx, args):
    return "ok"

def new_worker(db):
    return Worker(queue="good", handlers={"good.Ok": ok})

registry = [new_worker]
schedule = []
"""

# What is added to a good registry, or stands in its place; and what the refusal says.
BAD: dict[str, tuple[str, list[str]]] = {
    "syntax error": ("\ndef broken(:\n    pass\n", ["SyntaxError", "{file}:2"]),
    "import of nothing": (
        "import there_is_no_such_module\n",
        ["No module named 'there_is_no_such_module'", "{file}:1"],
    ),
    "raises": ("\n\n1 / 0\n", ["ZeroDivisionError: division by zero", "{file}:3"]),
    "exits": ("raise SystemExit('I prefer not to')\n", ["I prefer not to", "{file}:1"]),
    "no registry": ("schedule = []\n", ["must define `registry`, a list"]),
    "no schedule": (f"{GOOD}\ndel schedule\n", ["must define `schedule`, a list"]),
    "no list": (f"{GOOD}\nregistry = new_worker\n", ["must define `registry`, a list"]),
    "no workers": (f"{GOOD}\nregistry = []\n", ["no workers"]),
    "duplicates": (f"{GOOD}\nregistry = [new_worker, new_worker]\n", ["two workers for queue 'good'"]),
    "no worker": (f"{GOOD}\nregistry = [lambda db: 'good']\n", ["returned str, not a Worker"]),
    "a worker that raises": (
        f"{GOOD}\ndef new_worker(db):\n    return os.environ['NO_SUCH_TOKEN']\nregistry = [new_worker]\n",
        ["{module}.new_worker: KeyError: 'NO_SUCH_TOKEN'"],
    ),
    "a worker that cannot work": (
        f"{GOOD}\nregistry = [lambda db: Worker(queue='good', handlers={{'good.Ok': ok}}, dedupe={{'good.No'}})]\n",
        ["ValueError: queue good: dedupe names no handler of it: good.No"],
    ),
    "a scheduled job of nobody": (
        f"{GOOD}\nschedule = [Scheduled('good', 'good.Nobody', lambda minute: True)]\n",
        ["schedule names good good.Nobody, which no worker handles"],
    ),
    "a schedule of something else": (f"{GOOD}\nschedule = ['daily']\n", ["'daily', not a Scheduled"]),
}

# FAULTS 8: what children would inherit.
INHERITED = {
    "a connection at import": "connection = psycopg.connect(os.environ['DATABASE_URL'])",
    "a connection of a worker's": (
        "def new_worker(db):\n"
        "    connection = psycopg.connect(os.environ['DATABASE_URL'])\n"
        "    return Worker(queue='good', handlers={'good.Ok': lambda ctx, args: str(connection)})\n"
        "registry = [new_worker]\n"
    ),
    "a pool at import": (
        "pool = psycopg_pool.ConnectionPool(os.environ['DATABASE_URL'], min_size=1, open=True)\npool.wait()"
    ),
    "a thread at import": "threading.Thread(target=time.sleep, args=(3600,)).start()",
}


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded() as opened:
        yield opened


@pytest.fixture
def run_paceline(preloaded: Preloaded) -> Paceline:
    """With no database: none is asked before the registry stands."""
    return preloaded.for_database(NOWHERE)


def module(directory: Path, source: str) -> str:
    (directory / "bad_queues.py").write_text(source)
    return "bad_queues"


@pytest.mark.parametrize("fault", BAD)
def test_run_refuses_a_registry_with(fault: str, run_paceline: Paceline, tmp_path: Path) -> None:
    source, words = BAD[fault]
    done = run_paceline("run", registry=module(tmp_path, source), env={"PYTHONPATH": str(tmp_path)})
    places = {"file": str(tmp_path / "bad_queues.py"), "module": "bad_queues"}
    refused(done, 2, "registry bad_queues: ", *(word.format(**places) for word in words))


@pytest.mark.parametrize("opened", INHERITED)
def test_run_refuses_a_registry_that_opens(opened: str, run_paceline: Paceline, cluster: str, tmp_path: Path) -> None:
    """FAULTS 8: what children would inherit. The refusal is the end, whatever was started."""
    source = f"{GOOD}\n{INHERITED[opened]}\n"
    done = run_paceline("run", registry=module(tmp_path, source), url=cluster, env={"PYTHONPATH": str(tmp_path)})
    refused(done, 2, "registry bad_queues: ", "inside a handler, on first use")


def test_run_refuses_a_registry_that_uses_its_db_before_the_fork(run_paceline: Paceline, tmp_path: Path) -> None:
    """FAULTS 8."""
    source = f"{GOOD}\ndef new_worker(db):\n    with db.connection():\n        pass\nregistry = [new_worker]\n"
    done = run_paceline("run", registry=module(tmp_path, source), env={"PYTHONPATH": str(tmp_path)})
    refused(done, 2, "bad_queues.new_worker: UsedBeforeFork:", "use it inside a handler")


@pytest.mark.parametrize("name", ["there_is_no_such_module", "tests.there_is_no_such_module", "no_such.package"])
def test_run_refuses_a_module_that_there_is_not(name: str, run_paceline: Paceline) -> None:
    refused(run_paceline("run", registry=name), 2, f"no module '{name}'", "PACELINE_REGISTRY", "PYTHONPATH")


def test_a_registry_on_the_pythonpath_is_taken(run_paceline: Paceline, database: str, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(tmp_path)}
    done = run_paceline("run", "--burst", registry=module(tmp_path, GOOD), url=database, env=env)
    assert done.returncode == 0, done.stderr
    assert "ready, 1 queue," in done.stderr


@pytest.mark.slow
def test_a_registry_that_changes_the_environment_takes_no_process_its_title(
    run_supervisor: RunSupervisor, tmp_path: Path
) -> None:
    """FAULTS 44: setproctitle finds the title's place by that of the first variable, unless that has been changed."""
    lines = [
        "import os",
        "first = next(iter(os.environ))",
        "os.environ[first] += 'x' * 100",
        "from tests.support.queues import registry, schedule",
    ]
    (tmp_path / "changes.py").write_text("\n".join(lines))
    sup = run_supervisor("quick", registry="changes", env={"PYTHONPATH": str(tmp_path)})
    eventually(lambda: sup.titles() == ["paceline: parent 1 queue", "paceline: quick idle"])
