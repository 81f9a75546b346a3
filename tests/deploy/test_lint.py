"""What the tools of each trade say of deploy/: hadolint, compose, the schemas of Kubernetes, systemd."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.supervised import ROOT

DEPLOY = ROOT / "deploy"
_BIN = Path(sys.executable).parent


def tool(name: str) -> str:
    """The program of that name, of this environment or else of the PATH; skips the test where there is none."""
    here = _BIN / name
    found = str(here) if here.exists() else shutil.which(name)
    if not found:
        pytest.skip(f"no {name}: `make test-deploy` brings it, but for systemd's")
    return found


def run(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=os.environ | env, capture_output=True, text=True, check=False)


def test_hadolint_has_nothing_to_say() -> None:
    done = run(tool("hadolint"), "--no-color", str(DEPLOY / "Dockerfile"))
    assert (done.returncode, done.stdout) == (0, ""), done


def test_compose_reads_its_file_and_asks_for_a_password() -> None:
    compose = tool("docker-compose")
    read = run(compose, "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet", POSTGRES_PASSWORD="any")
    assert (read.returncode, read.stderr) == (0, ""), read
    refused = run(compose, "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet", POSTGRES_PASSWORD="")
    assert refused.returncode and "POSTGRES_PASSWORD" in refused.stderr


@pytest.mark.parametrize("version", ["1.28", "1.30", "1.34"])
def test_kubernetes_admits_every_field_of_its_manifest(version: str) -> None:
    done = run(tool("kubernetes-validate"), "--strict", "-k", version, str(DEPLOY / "kubernetes.yaml"))
    assert done.returncode == 0 and "passed" in done.stdout + done.stderr, done


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, with a program that is there."""
    copy = tmp_path / "paceline.service"
    copy.write_text((DEPLOY / "paceline.service").read_text().replace("/opt/paceline/bin/paceline", "/bin/true"))
    return copy


def test_systemd_verifies_the_unit(unit: Path) -> None:
    done = run(tool("systemd-analyze"), "verify", "--man=no", str(unit))
    ours = [line for line in done.stderr.splitlines() if "paceline" in line]
    assert (done.returncode, ours) == (0, []), done


def test_systemd_finds_the_unit_well_hardened(unit: Path) -> None:
    """Of 100; a unit with no hardening has 96."""
    done = run(tool("systemd-analyze"), "security", "--offline=yes", "--no-pager", "--threshold=25", str(unit))
    if "unrecognized option" in done.stderr or "Unknown option" in done.stderr:
        pytest.skip("systemd older than 250")
    assert done.returncode == 0, done.stdout[-300:]
