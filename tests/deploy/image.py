"""The image without a Docker engine: the Dockerfile's steps run in roots that debootstrap makes of the same packages,
and the result run as a container is: PID 1 of its own namespaces, an unprivileged user, nothing to write to but /tmp.

Only the network is the machine's, so that the tests' Postgres can be reached.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import Signals

from tests.deploy.dockerfile import Ignored, Instruction, Stage, stages
from tests.support.processes import Process, process
from tests.support.supervised import ROOT
from tests.support.wait import eventually

# What this machine needs to reach the package registries: Docker passes proxies to a build likewise.
_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL")
_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_MOUNT = """
mount --bind "$0" "$0"
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
"""
_BUILD = f"""{_MOUNT}
mount -t tmpfs run "$0/run"
cp /etc/resolv.conf "$0/run/resolv.conf"
[ ! -e {_AUTHORITIES} ] || cp {_AUTHORITIES} "$0/run/authorities"
mount --bind "$0/run/resolv.conf" "$0/etc/resolv.conf"
exec chroot "$0" "$@"
"""
_RUN = f"""{_MOUNT}
mount -t tmpfs -o mode=1777 tmp "$0/tmp"
[ -z "$MOUNTED" ] || mount --bind "$MOUNTED" "$0/mnt"
mount -o remount,bind,ro "$0"
hostname "$CONTAINER"
exec chroot "$0" "$@"
"""


def base(name: str, place: Path) -> Path:
    """A root like that of the image debian:SUITE-slim, made once in `place`."""
    suite = name.removeprefix("debian:").removesuffix("-slim")
    root = place / suite
    if not root.exists():
        place.mkdir(parents=True, exist_ok=True)
        new = root.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        _checked(["debootstrap", "--variant=minbase", suite, str(new)])
        (new / "etc/dpkg/dpkg.cfg.d/no-sync").write_text("force-unsafe-io\n")  # as Debian's images have it
        new.rename(root)
    return root


class Image:
    """The Dockerfile's last stage, built in `place`."""

    def __init__(self, file: Path, base_place: Path, place: Path) -> None:
        self._ignored = Ignored(ROOT / ".dockerignore")
        self._roots: dict[str, Path] = {}
        for number, stage in enumerate(stages(file)):
            self.stage, self.root = stage, place / f"stage{number}"
            _checked(["cp", "-a", str(base(stage.base, base_place)), str(self.root)])
            self._roots[stage.name] = self.root
            self._build(stage)

    def _build(self, stage: Stage) -> None:
        directory, environment = "/", {"PATH": _PATH}
        for each in stage.instructions:
            if each.word == "WORKDIR":
                directory = each.rest
                self._within(directory).mkdir(parents=True, exist_ok=True)
            elif each.word == "ENV":
                environment |= stage.environment
            elif each.word == "COPY":
                self._copy(each, directory)
            elif each.word == "RUN":
                self._run(each.rest, directory, environment)

    def with_packages(self, place: Path, *packages: str) -> Path:
        """A copy of its root, with more of Debian's packages."""
        _checked(["cp", "-a", str(self.root), str(place)])
        self._run(f"apt-get update && apt-get install -y {' '.join(packages)}", "/", {"PATH": _PATH}, place)
        return place

    def _run(self, script: str, directory: str, environment: Mapping[str, str], root: Path | None = None) -> None:
        given = environment | {name: os.environ[name] for name in _NETWORK if name in os.environ}
        if _AUTHORITIES.exists():
            given |= {"PIP_CERT": "/run/authorities"}
        pairs = [f"{name}={value}" for name, value in given.items()]
        command = ["env", "-i", f"--chdir={directory}", *pairs, "sh", "-c", script]
        _checked(
            [
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "sh",
                "-ec",
                _BUILD,
                str(root or self.root),
                *command,
            ]
        )

    def _copy(self, each: Instruction, directory: str) -> None:
        *sources, to = [word for word in each.rest.split() if not word.startswith("--")]
        target = self._within(str(Path(directory, to)))
        for source in sources:
            if stage := each.flags.get("from"):
                _checked(["cp", "-a", f"{self._roots[stage]}{source}", str(target)])
            elif (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, target, ignore=self._leave_out)
            else:
                assert not self._ignored(source), f"{source} is kept out by .dockerignore"
                into = target / Path(source).name if to.endswith("/") else target
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / source, into)

    def _leave_out(self, directory: str, names: list[str]) -> set[str]:
        place = Path(directory).relative_to(ROOT)
        return {name for name in names if self._ignored(str(place / name))}

    def _within(self, path: str) -> Path:
        return self.root / path.lstrip("/")


class Container:
    """The image, running. Without arguments it does what the image's CMD says."""

    def __init__(
        self, image: Image, *arguments: str, env: Mapping[str, str], log: Path, mounted: Path | None = None
    ) -> None:
        stage = image.stage
        self.log_file = log
        uid, gid = stage.the("USER").rest.split(":")
        pairs = [f"{name}={value}" for name, value in {**stage.environment, "HOSTNAME": "container", **env}.items()]
        # As Docker does it by default, and the manifests ask: no root, no capability, and no way to either.
        self._as_user = [
            *("setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs"),
            *("--bounding-set=-all", "--inh-caps=-all", "env", "-i", *pairs),
        ]
        command = [*stage.the("ENTRYPOINT").exec_form, *(arguments or stage.the("CMD").exec_form)]
        with log.open("wb") as output:
            self._popen = subprocess.Popen(
                [
                    *("unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"),
                    *("sh", "-ec", _RUN, str(image.root), *self._as_user, *command),
                ],
                env={**os.environ, "CONTAINER": "container", "MOUNTED": str(mounted or "")},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def parent(self) -> Process:
        """Its PID 1, as the machine sees it."""
        return eventually(lambda: process(self._popen.pid).children[0])

    def exec(self, *command: str) -> subprocess.CompletedProcess[str]:
        """What `docker exec` does."""
        entered = ["nsenter", f"--target={self.parent.pid}", "--mount", "--pid", "--uts", "--ipc", "--root", "--wd"]
        return subprocess.run([*entered, *self._as_user, *command], capture_output=True, text=True, check=False)

    def signal(self, signo: Signals) -> None:
        self.parent.signal(signo)

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def wait_ready(self) -> None:
        eventually(lambda: "paceline: ready" in self.log() or self._popen.poll() is not None, 30)
        assert "paceline: ready" in self.log(), f"exit code {self._popen.poll()}:\n{self.log()}"

    def wait(self, timeout: float = 30.0) -> int:
        """Its exit code."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout:g} s:\n{self.log()}") from None

    def close(self) -> None:
        if self._popen.poll() is None:
            with suppress(ProcessLookupError, AssertionError):
                self.parent.signal(Signals.SIGKILL)  # the kernel ends the rest of its namespace
            self._popen.wait(10)


def _checked(command: Sequence[str]) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-4000:]}"
