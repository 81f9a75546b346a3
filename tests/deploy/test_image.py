"""The image, built step by step and run as PID 1: `ps` names its processes, TERM drains, HEALTHCHECK tells the truth.

`make test-deploy` runs it: it takes root, debootstrap and the package registries.
"""

import re
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGCONT, SIGSTOP, SIGTERM
from typing import Any

import pytest

from tests.deploy.image import Container, Image
from tests.deploy.locks import pinned
from tests.process.test_web import free_port
from tests.support.relay import Relay
from tests.support.rows import Rows, Sql
from tests.support.wait import eventually

pytestmark = pytest.mark.slow

Start = Callable[..., Container]

NAPS = """
import time
from supervisor import Worker

def nap(ctx, args: dict) -> str:
    time.sleep(args["seconds"])
    return "ok: has slept"

registry = [lambda db: Worker(queue="naps", handlers={"naps.Nap": nap})]
schedule = []
"""


@pytest.fixture
def start(image: Image, empty_database: str, relay: Relay, tmp_path: Path) -> Iterator[Start]:
    """Starts containers on a database of the test's own, by TCP."""
    started: list[Container] = []

    def run(*arguments: str, mounted: Path | None = None, **env: str) -> Container:
        log = tmp_path / f"container-{len(started) + 1}.log"
        container = Container(image, *arguments, env={"DATABASE_URL": relay.url, **env}, log=log, mounted=mounted)
        started.append(container)
        return container

    yield run
    for container in started:
        container.close()
        sys.stderr.write(container.log())  # pytest shows it where the test failed


@pytest.fixture
def serve(start: Start) -> Start:
    """As an operator does it: migrate, then the service, which gets ready."""

    def run(*arguments: str, **more: Any) -> Container:
        assert start("migrate", **more).wait() == 0
        container = start(*arguments, **more)
        container.wait_ready()
        return container

    return run


def test_ps_shows_the_parent_as_pid_1_and_a_named_process_per_queue_of_an_unprivileged_user(serve: Start) -> None:
    container = serve()
    shown = container.exec("ps", "-eo", "pid=,user=,args=").stdout
    [first, *others] = [line.split(None, 2) for line in shown.splitlines()]
    assert first[:2] == ["1", "paceline"] and re.fullmatch(r"paceline: parent \d+ queues", first[2])
    assert {"caches", "jobs"} <= {title.split()[1] for _, _, title in others if title.startswith("paceline: ")}
    assert {user for _, user, _ in others} == {"paceline"}


def test_term_drains_with_exit_0_and_the_running_job_finishes(serve: Start, rows: Rows, tmp_path: Path) -> None:
    (tmp_path / "naps.py").write_text(NAPS)
    tmp_path.chmod(0o755)
    container = serve(mounted=tmp_path, PYTHONPATH="/mnt", PACELINE_REGISTRY="naps")
    enqueued = container.exec("paceline", "enqueue", "naps", "naps.Nap", '{"seconds": 3}')
    job = int(enqueued.stdout)
    eventually(lambda: rows.status(job) == "started")
    container.signal(SIGTERM)
    assert container.wait() == 0
    assert rows.status(job) == "ok: has slept"
    assert "drained" in container.log()


def test_an_idle_container_stops_at_once(serve: Start) -> None:
    container = serve()
    began = time.monotonic()
    container.signal(SIGTERM)
    assert container.wait() == 0
    assert time.monotonic() - began < 5


def test_healthcheck_passes_also_with_the_database_gone_and_fails_for_a_parent_that_hangs(
    serve: Start, image: Image, relay: Relay
) -> None:
    container = serve()
    check = image.stage.healthcheck
    passed = container.exec(*check)
    assert (passed.returncode, passed.stdout) == (0, "ok\n"), passed
    relay.refuse()
    relay.cut()
    eventually(lambda: container.exec("paceline", "health").returncode == 1, 60)
    assert container.exec(*check).returncode == 0
    container.signal(SIGSTOP)
    failed = eventually(lambda: (done := container.exec(*check)).returncode and done, 60)
    assert "loop has not turned" in failed.stderr
    container.signal(SIGCONT)
    eventually(lambda: container.exec(*check).returncode == 0)


def test_what_a_killed_process_leaves_is_reaped(serve: Start) -> None:
    container = serve()
    container.exec("sh", "-c", "(sleep 0.1; exit 3) & exec true")  # an orphan: PID 1 adopts it
    eventually(lambda: "sleep" not in container.exec("ps", "-eo", "args=").stdout)
    assert "Z" not in "".join(container.exec("ps", "-eo", "state=").stdout)


def test_migrate_makes_the_table_and_may_be_repeated(start: Start, sql: Sql) -> None:
    assert start("migrate").wait() == 0
    assert start("migrate").wait() == 0
    assert sql("SELECT count(*) FROM jobs") == [(0,)]


def test_run_on_a_database_without_the_table_says_what_to_do(start: Start) -> None:
    container = start()
    assert container.wait() == 1
    assert "paceline migrate" in container.log()


def test_probes_and_metrics_answer(serve: Start) -> None:
    port = free_port()
    serve("run", "--web", f"0.0.0.0:{port}")
    for path in ("livez", "readyz", "healthz", "metrics"):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
            assert answer.status == 200


def test_no_tool_of_the_build_is_in_the_last_stage(serve: Start) -> None:
    container = serve()
    tools = "pip pip3 gcc cc make git curl wget uv"
    assert container.exec("sh", "-c", f"command -v {tools}").stdout == ""
    assert container.exec("python", "-m", "pip", "--version").returncode != 0
    assert container.exec("python", "-c", "import ensurepip; ensurepip.version()").returncode != 0


def test_the_user_can_write_nothing_but_tmp(image: Image, serve: Start) -> None:
    container = serve()
    kinds = r"\( -type f -o -type d \)"
    search = f"find / -xdev {kinds} -writable 2>/dev/null; find /app -xdev {kinds} -user paceline"
    assert container.exec("sh", "-c", search).stdout == "/tmp\n"
    # Nor would it where the root is writable: by the files' modes.
    writable = [
        str(path.relative_to(image.root))
        for path in image.root.rglob("*")
        if not path.is_symlink() and (path.stat().st_uid == 10001 or path.stat().st_mode & 0o002)
    ]
    assert [path for path in writable if not re.match(r"(tmp|var/tmp|run/lock|var/lock|dev/.*)$", path)] == []


def test_the_image_has_the_versions_of_the_lock_and_no_others(serve: Start) -> None:
    container = serve()
    code = "from importlib.metadata import distributions as d; print(*(f'{x.name}=={x.version}' for x in d()))"
    installed = {each.lower().replace("_", "-") for each in container.exec("python", "-c", code).stdout.split()}
    locked = {f"{name}=={version}" for name, version in pinned("requirements.lock", sys_platform="linux").items()}
    assert {each for each in installed if not each.startswith("paceline==")} == locked
