"""The files of deploy/ say the same as the service and each other: commands, flags, environment, limits, versions."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from supervisor import cli
from supervisor.health import STUCK
from tests.deploy.dockerfile import Ignored, stages
from tests.support.supervised import ROOT

DEPLOY = ROOT / "deploy"
LAST_WORDS = 20  # seconds that a forced drain may take past its limit: rows are ended, events leave
LAST_STAGE = {"ca-certificates", "procps", "python3"}

# What others than the service read: the shell, Python, libpq, the Postgres image.
OTHERS = {"PATH", "PYTHONUNBUFFERED", "PGPASSWORD", "POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD"}


@pytest.fixture(scope="module")
def last_stage() -> Any:
    return stages(DEPLOY / "Dockerfile")[-1]


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def deployment() -> Any:
    return yaml.safe_load((DEPLOY / "kubernetes.yaml").read_text())


@pytest.fixture(scope="module")
def pod(deployment: Any) -> Any:
    return deployment["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def unit() -> dict[str, dict[str, list[str]]]:
    """Section -> key -> values."""
    found: dict[str, dict[str, list[str]]] = {}
    for line in (DEPLOY / "paceline.service").read_text().splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            section.setdefault(key, []).append(value)
    return found


# The image


def test_the_last_stage_has_no_tool_of_the_build(last_stage: Any) -> None:
    assert len(stages(DEPLOY / "Dockerfile")) == 2
    scripts = " ".join(each.rest for each in last_stage.all("RUN"))
    [installed] = re.findall(r"apt-get install -y --no-install-recommends (.*?) &&", scripts)
    assert set(installed.split()) == LAST_STAGE
    assert "pip" not in scripts


def test_the_parent_is_pid_1_and_is_told_to_drain(last_stage: Any) -> None:
    assert last_stage.the("ENTRYPOINT").exec_form == ["paceline"]
    assert last_stage.the("CMD").exec_form == ["run"]
    assert last_stage.the("STOPSIGNAL").rest == "SIGTERM"


def test_the_image_is_of_a_user_that_kubernetes_can_tell_from_root(last_stage: Any, pod: Any) -> None:
    uid, gid = map(int, last_stage.the("USER").rest.split(":"))
    assert uid > 0 and gid > 0
    asked = pod["securityContext"]
    assert (asked["runAsNonRoot"], asked["runAsUser"], asked["runAsGroup"]) == (True, uid, gid)


def test_only_liveness_is_the_containers_health(last_stage: Any, pod: Any) -> None:
    """A dead database or one bad queue never restarts the healthy rest."""
    assert last_stage.healthcheck == ["paceline", "health", "--live"]
    [container] = pod["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_dependencies_come_by_their_hashes_and_nothing_is_compiled() -> None:
    scripts = " ".join(each.rest for each in stages(DEPLOY / "Dockerfile")[0].all("RUN"))
    installs = re.findall(r"pip (?:--python \S+ )?(?:install|wheel) .*?(?= && | python3 |$)", scripts)
    assert len(installs) == scripts.count("-m pip") == 3
    for install in installs:
        assert "--require-hashes" in install or "--no-deps" in install, install
    assert "--only-binary :all: --require-hashes" in scripts


def test_what_is_copied_is_there_and_nothing_else_reaches_the_build() -> None:
    ignored = Ignored(ROOT / ".dockerignore")
    first, last = stages(DEPLOY / "Dockerfile")
    assert [each.flags["from"] for each in last.all("COPY")] == [first.name]
    copied = {source for each in first.all("COPY") for source in each.rest.split()[:-1]}
    for source in copied:
        assert (ROOT / source).exists() and not ignored(source), source
    assert {path.name for path in ROOT.iterdir() if not ignored(path.name)} == {c for c in copied if "/" not in c}
    for secret in (".git/config", ".env", "deploy/.env", ".postgres/data/base", "supervisor/__pycache__/cli.pyc"):
        assert ignored(secret), secret
    assert not ignored("supervisor/sql/claim.sql")


# Commands, flags, environment


def commands(last_stage: Any, compose: Any, pod: Any, unit: Any) -> Iterator[list[str]]:
    """Every command of `paceline` that deploy/ gives, without the program."""
    yield last_stage.the("CMD").exec_form
    yield last_stage.healthcheck[1:]
    yield compose["services"]["migrate"]["command"]
    assert "command" not in compose["services"]["paceline"]  # the image's
    yield from (each["args"] for each in [*pod["initContainers"], *pod["containers"]])
    yield from (line.split()[1:] for line in unit["Service"]["ExecStart"])
    for file in DEPLOY.iterdir():
        if file.suffix in (".yaml", ".service") or file.name == "Dockerfile":
            for line in re.findall(
                r"^# .*?(?:/bin/paceline|\bpaceline paceline|-- paceline) (.*)$", file.read_text(), re.M
            ):
                yield line.split()


def test_each_command_is_one_that_paceline_knows(last_stage: Any, compose: Any, pod: Any, unit: Any) -> None:
    found = list(commands(last_stage, compose, pod, unit))
    assert len(found) >= 8
    for command in found:
        cli._parser().parse_args(command)  # UsageError for what it does not know


def test_each_variable_is_one_that_something_reads(
    last_stage: Any, compose: Any, pod: Any, unit: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    known = set(re.findall(r"^  ([A-Z_]{4,}) ", capsys.readouterr().out, re.M)) | OTHERS
    given = set(last_stage.environment)
    given |= {name for service in compose["services"].values() for name in service["environment"]}
    given |= {each["name"] for container in pod["containers"] for each in container["env"]}
    given |= {line.partition("=")[0] for line in unit["Service"]["Environment"]}
    for file in DEPLOY.iterdir():
        if file.is_file():
            given |= set(re.findall(r"\b((?:PACELINE|SENTRY|DATABASE)_[A-Z_]+)\b", file.read_text()))
    assert given <= known


# Limits


def test_a_stop_waits_longer_than_a_drain_may_take(compose: Any, pod: Any, unit: Any) -> None:
    service = compose["services"]["paceline"]
    [container] = pod["containers"]
    environment = dict(line.split("=") for line in unit["Service"]["Environment"])
    limits = {
        "compose.yaml": (
            float(service["environment"]["PACELINE_DRAIN_TIMEOUT"]),
            float(service["stop_grace_period"].removesuffix("s")),
        ),
        "kubernetes.yaml": (
            float({each["name"]: each["value"] for each in container["env"]}["PACELINE_DRAIN_TIMEOUT"]),
            float(pod["terminationGracePeriodSeconds"]),
        ),
        "paceline.service": (
            float(environment["PACELINE_DRAIN_TIMEOUT"]),
            float(unit["Service"]["TimeoutStopSec"][0]),
        ),
    }
    for file, (drain, stop) in limits.items():
        assert stop >= drain + LAST_WORDS, file


def test_a_parent_is_given_longer_to_turn_than_the_probe_gives_it(pod: Any, unit: Any) -> None:
    """systemd's watchdog is no stricter than /livez, and neither ends a parent for one slow second."""
    assert float(unit["Service"]["WatchdogSec"][0]) > STUCK
    probe = pod["containers"][0]["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > STUCK


# Each manifest's own


def test_compose_migrates_once_the_database_is_there_and_runs_once_it_has(compose: Any) -> None:
    services = compose["services"]
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert services["paceline"]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    assert "restart" not in services["migrate"]
    [volume] = services["postgres"]["volumes"]
    assert volume.partition(":")[0] in compose["volumes"]


def test_a_rollout_overlaps(deployment: Any) -> None:
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert deployment["spec"]["replicas"] >= 2


def test_kubernetes_locks_every_container_and_names_this_version(pod: Any) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for container in [*pod["initContainers"], *pod["containers"]]:
        asked = container["securityContext"]
        assert asked["readOnlyRootFilesystem"] and not asked["allowPrivilegeEscalation"]
        assert asked["capabilities"] == {"drop": ["ALL"]}
        assert container["image"] == f"paceline:{version}"
    web = pod["containers"][0]["ports"][0]["containerPort"]
    assert f":{web}" in pod["containers"][0]["args"][-1]


def test_systemd_tells_the_parent_alone_and_no_queue_takes_another_along(unit: Any) -> None:
    service = {key: values[0] for key, values in unit["Service"].items()}
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    assert service["KillMode"] == "mixed"
    assert service["OOMPolicy"] == "continue"
    assert service["ExecReload"].endswith("kill -HUP $MAINPID")
    assert service["RuntimeDirectory"] == "paceline"  # where root's commands look
    assert service["TimeoutStartSec"] == "infinity"  # it waits for the database


def test_no_key_of_the_unit_stands_twice(unit: Any) -> None:
    twice = [key for section in unit.values() for key, values in section.items() if len(values) > 1]
    assert set(twice) <= {"Environment"}
