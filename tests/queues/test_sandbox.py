"""`paceline run --sandbox`: the whole flow on stand-ins, no vendor called, no token used, no other database touched."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM

import pytest

import queues
from deploy.sandbox.companies import COMPANIES
from deploy.sandbox.server import TOKEN, Sandbox, Vendor
from supervisor import DB
from supervisor.config import Registry
from supervisor.sandbox import Sandbox as Engines
from supervisor.sandbox import Terms
from tests.queues.harness import SECRET
from tests.support.embedded_users import stopped
from tests.support.processes import Process
from tests.support.rows import Rows
from tests.support.supervised import ROOT, Paceline, RunSupervisor, Supervised
from tests.support.wait import eventually

pytestmark = pytest.mark.slow

NAMES = [new_worker(DB("postgresql:///")).queue for new_worker in queues.registry]
VENDORS = [name for name in NAMES if name not in ("caches", "jobs")]
TOKENS = {f"{name.upper()}_TOKEN": SECRET for name in VENDORS}
OUTSIDE = {f"{name.upper()}_URL": f"http://192.0.2.1/{name}" for name in VENDORS}  # RFC 5737: nobody has that address

# Becomes the program that it is given, alone with a loopback.
WITHOUT_NETWORK = f"""#!{sys.executable}
import ctypes, fcntl, os, socket, struct, sys
CLONE_NEWNET, SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x40000000, 0x8913, 0x8914, 1
if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
    sys.exit(os.strerror(ctypes.get_errno()))
with socket.socket() as any:
    name, flags = struct.unpack("16sh", fcntl.ioctl(any, SIOCGIFFLAGS, struct.pack("16sh", b"lo", 0)))
    fcntl.ioctl(any, SIOCSIFFLAGS, struct.pack("16sh", name, flags | IFF_UP))
os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])
"""


def stand_ins(sup: Supervised) -> list[Process]:
    return [child for child in sup.parent.children if child.title == "paceline-sandbox stand-ins"]


def ended(rows: Rows, *outcomes: str) -> set[str]:
    """The queues with a job that ended so."""
    found = rows.execute("SELECT DISTINCT queue, split_part(status, ':', 1) FROM jobs WHERE finished_at IS NOT NULL")
    return {queue for queue, outcome in found if outcome in outcomes}


def test_jobs_of_every_queue_run_with_no_vendor_called_and_no_token_used(
    run_supervisor: RunSupervisor, empty_database: str, rows: Rows, tmp_path: Path
) -> None:
    """The environment has a token for each vendor, and an address. For root, there is nothing but a loopback."""
    python = sys.executable
    if os.geteuid() == 0 and "PACELINE_TEST_URL" not in os.environ:  # whose server may be out of reach
        (tmp_path / "python").write_text(WITHOUT_NETWORK)
        (tmp_path / "python").chmod(0o755)
        python = str(tmp_path / "python")
    sup = run_supervisor(registry="queues", flags=["--sandbox"], env=TOKENS | OUTSIDE, python=python)
    eventually(lambda: ended(rows, "ok", "skip") == set(NAMES), 60)
    assert sup.parent.threads == 1
    eventually(lambda: rows.execute("SELECT count(*) FROM companies WHERE enriched_at IS NOT NULL")[0][0] >= 20, 60)
    assert rows.execute("SELECT count(*) FROM companies") == [(len(COMPANIES),)]
    sup.terminate()
    assert sup.wait() == 0
    assert ended(rows, "err") == set(), rows.execute("SELECT name, status FROM jobs WHERE status LIKE 'err%'")
    log = sup.log()
    assert f"sandbox: ignores {', '.join(sorted(TOKENS))} of the environment" in log
    assert SECRET not in log
    for queue in NAMES:
        assert f"queue={queue} job={queue}." in log


def test_one_vendor_can_be_called_itself_with_its_own_token_and_pace(
    run_supervisor: RunSupervisor, empty_database: str, rows: Rows, all_vendors: Sandbox
) -> None:
    """The vendor is played by a stand-in of the test's."""
    vendor: Vendor = all_vendors.vendors["slack"]
    vendor.reset()
    env = (
        TOKENS
        | OUTSIDE
        | {"SLACK_URL": f"{all_vendors.url}/slack", "SLACK_TOKEN": TOKEN, "SLACK_CHANNEL": "C0MINE00001"}
    )
    sup = run_supervisor("slack", "discord", registry="queues", flags=["--sandbox", "--live=slack"], env=env)
    eventually(lambda: ended(rows, "ok") == {"slack", "discord"})
    assert [request.json()["channel"] for request in vendor.requests] == ["C0MINE00001"]
    assert "sandbox: slack is called itself\n" in sup.log()
    others = sorted(set(TOKENS) - {"SLACK_TOKEN"})
    assert f"sandbox: ignores {', '.join(others)} of the environment" in sup.log()


def test_the_throttle_of_a_live_vendor_stays_as_it_is() -> None:
    workers = tuple(new_worker(DB("postgresql:///")) for new_worker in queues.registry)
    sandbox = Engines(["slack"])
    sandbox._terms = Terms(pace={"discord": 5.0, "caches": 5.0})
    paced = {worker.queue: worker for worker in sandbox.paced(Registry(workers, ())).workers}
    slack, discord = paced["slack"].throttle, paced["discord"].throttle
    assert slack and discord
    assert (slack("ok", None, 0.0), discord("ok", None, 0.0)) == (1.0, 0.2)
    assert paced["caches"].throttle is None


def test_a_vendor_that_nobody_stands_in_for_is_a_usage_error(run_paceline: Paceline, empty_database: str) -> None:
    done = run_paceline("run", "--sandbox", "--live=nobody", registry="queues")
    assert (done.returncode, "no vendor 'nobody' to let live; there are: " in done.stderr) == (2, True)
    done = run_paceline("run", "--live=slack", registry="queues")
    assert (done.returncode, "--live is for --sandbox" in done.stderr) == (2, True)


# --- the stand-ins' process


def test_the_stand_ins_serve_until_the_last_job_and_end_after_the_parent(
    run_supervisor: RunSupervisor, empty_database: str, rows: Rows
) -> None:
    """Whatever signals they get: a terminal's go to all its processes, a service manager's to all of a group."""
    sup = run_supervisor("slack", registry="queues", flags=["--sandbox"])
    [server] = stand_ins(sup)
    for signo in (SIGINT, SIGTERM, SIGHUP):
        server.signal(signo)
    sup.signal_group(SIGINT)
    assert sup.wait() == 0
    eventually(lambda: not server.alive)
    assert ended(rows, "err") == set()


def test_the_stand_ins_do_not_outlive_a_killed_parent(run_supervisor: RunSupervisor, empty_database: str) -> None:
    sup = run_supervisor("slack", registry="queues", flags=["--sandbox"])
    [server] = stand_ins(sup)
    sup.signal(SIGKILL)
    eventually(lambda: not server.alive)
    eventually(lambda: not sup.left())


def test_new_code_has_new_stand_ins_and_the_old_ones_end(
    run_supervisor: RunSupervisor, empty_database: str, rows: Rows
) -> None:
    sup = run_supervisor("slack", registry="queues", flags=["--sandbox"])
    [old] = stand_ins(sup)
    sup.signal(SIGHUP)
    eventually(lambda: sup.log().count("paceline: ready") == 2, 30)
    eventually(lambda: not old.alive)
    assert len(stand_ins(sup)) == 1
    assert "ignores" not in sup.log()  # what the sandbox itself had set
    job = rows.insert("slack", "slack.PostMessage", {"text": "again"})
    eventually(lambda: rows.status(job) == "ok")


# --- its database


def test_a_database_that_the_sandbox_did_not_make_is_refused_and_left_alone(
    run_paceline: Paceline, database: str, rows: Rows
) -> None:
    done = run_paceline("run", "--sandbox", registry="queues")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("paceline: this database was not made by the sandbox")
    assert rows.execute("SELECT (SELECT count(*) FROM jobs), to_regclass('paceline_sandbox')") == [(0, None)]


def test_a_database_with_any_table_is_not_the_sandboxs(run_paceline: Paceline, empty_database: str, rows: Rows) -> None:
    rows.execute("CREATE SCHEMA other CREATE TABLE theirs ()")
    assert run_paceline("run", "--sandbox", registry="queues").returncode == 1
    rows.execute("DROP TABLE other.theirs")
    assert run_paceline("run", "--sandbox", "--burst", "caches", registry="queues").returncode == 0


def test_the_sandboxs_database_is_refused_without_the_sandbox(
    run_supervisor: RunSupervisor, run_paceline: Paceline, empty_database: str, rows: Rows
) -> None:
    """By whatever way it is reached; and the sandbox goes on with it."""
    assert run_paceline("run", "--sandbox", "--burst", "caches", registry="queues").returncode == 0
    before = rows.execute("SELECT count(*) FROM jobs")
    done = run_paceline("run", registry="queues", env=TOKENS | OUTSIDE)
    assert (done.returncode, "this database is the sandbox's" in done.stderr) == (1, True)
    assert rows.execute("SELECT count(*) FROM jobs WHERE status <> 'pending' AND queue <> 'caches'") == [(0,)]
    assert rows.execute("SELECT count(*) FROM jobs") == before
    run_supervisor("slack", registry="queues", flags=["--sandbox"])
    eventually(lambda: ended(rows, "ok") == {"slack"})


def test_a_registry_without_a_sandbox_says_so(run_paceline: Paceline, empty_database: str) -> None:
    done = run_paceline("run", "--sandbox")
    assert (done.returncode, "the registry names no sandbox" in done.stderr) == (2, True)


@pytest.fixture
def checkout() -> Iterator[Path]:
    """A copy of this one, where any account can reach it."""
    path = Path(tempfile.mkdtemp(prefix="test-sandbox-", dir="/tmp"))
    path.chmod(0o755)
    for name in ("supervisor", "queues", "deploy"):
        shutil.copytree(ROOT / name, path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", path)
    yield path
    for home in path.glob(".postgres*"):
        eventually(partial(stopped, home))
    shutil.rmtree(path)


def test_the_sandboxs_own_server_is_beside_the_other_and_commands_find_the_one_that_is_there(checkout: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("DATABASE_URL", "PACELINE_REGISTRY")}

    def paceline(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "supervisor", *arguments]
        env = environment | TOKENS | OUTSIDE | {"PYTHONPATH": str(checkout)}
        return subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, timeout=60, check=False)

    def homes() -> set[str]:
        return {path.name for path in checkout.glob(".postgres*")}

    done = paceline("run", "--sandbox", "--burst", "slack")
    assert (done.returncode, homes()) == (0, {".postgres-sandbox"}), done.stderr
    assert "embedded in .postgres-sandbox" in done.stderr
    assert 'job=slack.PostMessage id=14 status="ok"' in done.stderr
    assert "/.postgres-sandbox/" in paceline("status").stdout
    assert homes() == {".postgres-sandbox"}

    done = paceline("run", "--burst", "caches")
    assert (done.returncode, homes()) == (0, {".postgres", ".postgres-sandbox"}), done.stderr
    assert "/.postgres/" in paceline("status").stdout
    assert "/.postgres-sandbox/" in paceline("status", "--sandbox").stdout

    shutil.rmtree(checkout / "deploy")  # as in a wheel
    done = paceline("run", "--sandbox")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.endswith("it comes with the source checkout, not with the package")
