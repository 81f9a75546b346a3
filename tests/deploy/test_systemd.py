"""paceline.service under a systemd that boots for it: ready, reloaded in place, its watchdog, a stop that drains.

With all of the unit's hardening. `make test-deploy` runs it, where there is a systemd-nspawn.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL

import pytest

from tests.deploy.image import Image
from tests.support.processes import Process, process
from tests.support.relay import Relay
from tests.support.supervised import ROOT, Paceline
from tests.support.wait import eventually

pytestmark = pytest.mark.slow


class Machine:
    """A machine booted by systemd-nspawn; only its network is ours."""

    def __init__(self, root: Path, log: Path) -> None:
        self.log_file = log
        command = ["systemd-nspawn", "--register=no", "--keep-unit", f"--directory={root}", "--boot"]
        with log.open("wb") as output:
            self._popen = subprocess.Popen(
                command,
                # The newer hierarchy, which systemd insists on by now, also where ours is of both kinds.
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def init(self) -> Process:
        return eventually(
            lambda: next(each for each in process(self._popen.pid).children if "nspawn" not in each.title)
        )

    def run(self, *command: str) -> str:
        entered = [
            "nsenter",
            f"--target={self.init.pid}",
            "--mount",
            "--pid",
            "--uts",
            "--ipc",
            "--root",
            "--wd",
            "env",
        ]
        path = "PATH=/opt/paceline/bin:/usr/bin:/bin"
        return subprocess.run([*entered, path, *command], capture_output=True, text=True, check=False).stdout

    def shows(self, *names: str) -> dict[str, str]:
        """Properties of the unit."""
        shown = self.run("systemctl", "show", "paceline", *(f"--property={name}" for name in names))
        return dict(line.split("=", 1) for line in shown.splitlines())

    def journal(self) -> str:
        return self.run("journalctl", "--no-pager", "--output=cat", "--unit=paceline")

    def close(self) -> None:
        self.init.signal(SIGKILL)  # the kernel ends the rest of its namespace
        self._popen.wait(20)


@pytest.fixture
def machine(
    image: Image, empty_database: str, relay: Relay, run_paceline: Paceline, tmp_path: Path
) -> Iterator[Machine]:
    """The unit is enabled, as its first lines say, but for where the program is installed."""
    if not shutil.which("systemd-nspawn"):
        pytest.skip("no systemd-nspawn: apt install systemd-container")
    assert run_paceline("migrate", registry="queues").returncode == 0
    root = image.with_packages(tmp_path / "machine", "systemd-sysv", "dbus")
    (root / "opt/paceline").symlink_to("/app")
    (root / "etc/paceline.env").write_text(f"DATABASE_URL={relay.url}\n")
    (root / "etc/paceline.env").chmod(0o600)
    shutil.copy2(ROOT / "deploy/paceline.service", root / "etc/systemd/system")
    wanted = root / "etc/systemd/system/multi-user.target.wants/paceline.service"
    wanted.parent.mkdir(parents=True, exist_ok=True)
    wanted.symlink_to("/etc/systemd/system/paceline.service")
    booted = Machine(root, tmp_path / "machine.log")
    yield booted
    booted.close()
    shutil.rmtree(root)


def test_systemd_starts_reloads_watches_and_stops_the_service(machine: Machine) -> None:
    eventually(lambda: machine.shows("ActiveState")["ActiveState"] == "active", 60)
    assert machine.journal().count("paceline: ready") == 1  # READY, not the start of a process, is what it waits for
    titles = machine.run("ps", "-eo", "user=,args=")
    assert "paceline paceline: caches" in titles and "paceline paceline: parent" in titles
    assert machine.run("paceline", "health") == "ok\n"  # root's finds the scoreboard in RuntimeDirectory
    pid = machine.shows("MainPID")["MainPID"]

    machine.run("systemctl", "reload", "paceline")
    eventually(lambda: machine.journal().count("paceline: ready") == 2, 30)
    assert machine.shows("MainPID", "NRestarts") == {"MainPID": pid, "NRestarts": "0"}

    machine.run("kill", "-STOP", pid)
    eventually(lambda: machine.journal().count("paceline: ready") == 3, 90)
    assert "Watchdog timeout" in machine.journal()
    assert machine.shows("NRestarts") == {"NRestarts": "1"}

    machine.run("systemctl", "stop", "paceline")
    assert "paceline: drained" in machine.journal().rpartition("SIGTERM: draining")[2]
    assert machine.shows("ActiveState", "Result", "ExecMainStatus") == {
        "ActiveState": "inactive",
        "Result": "success",
        "ExecMainStatus": "0",
    }
    assert "paceline:" not in machine.run("ps", "-eo", "args=")
