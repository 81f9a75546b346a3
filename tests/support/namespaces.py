"""Linux namespaces for tests, by unshare(1), nsenter(1) and ip(8): a PID 1, a name server, a network with two hosts.

Each gives a program for `run_supervisor(python=...)`, as tests/support/run_limited.py does. All of it needs root.
"""

import os
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import Process, process
from tests.support.supervised import RunSupervisor, Supervised
from tests.support.wait import eventually


def _missing(programs: tuple[str, ...]) -> str:
    if os.geteuid() != 0:
        return "needs root: it makes namespaces"
    if absent := [name for name in programs if shutil.which(name) is None]:
        return f"needs {absent[0]} (apt install util-linux iproute2)"
    tried = subprocess.run(["unshare", "--pid", "--mount", "--net", "--fork", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else f"this container makes no namespaces: {tried.stderr.decode().strip()}"


missing = _missing(("unshare", "nsenter", "ip"))  # why there can be no namespaces here; empty if there can
needs_namespaces = pytest.mark.skipif(bool(missing), reason=missing or "-")


def _program(directory: Path, name: str, *lines: str) -> str:
    file = directory / name
    file.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    file.chmod(0o755)
    return str(file)


# A PID namespace


def run_as_pid_1(run_supervisor: RunSupervisor, directory: Path, *queues: str, **options: object) -> Supervised:
    """A service that is PID 1 of a namespace of its own, as in a container; signals and children are that process's.

    To SIGKILL it is to SIGKILL the whole tree: the kernel does that. Its scoreboard is in `directory`, since its
    name there is the pid.
    """
    python = str(options.pop("python", sys.executable))
    ready = bool(options.pop("ready", True))
    env = {"XDG_RUNTIME_DIR": str(directory), **options.pop("env", {})}  # type: ignore[dict-item]
    unshare = f'exec unshare --pid --fork --mount-proc --kill-child -- "{python}" "$@"'
    program = _program(directory, "as-pid-1", unshare)
    sup = run_supervisor(*queues, python=program, env=env, ready=False, **options)  # type: ignore[arg-type]
    [sup.parent] = eventually(lambda: [child for child in process(sup.pid).children if pid_inside(child) == 1])
    sup.pid = sup.parent.pid
    if ready:
        sup.wait_ready()
    return sup


def pid_inside(of: Process) -> int:
    """Its pid in its own namespace: proc_pid_status(5)."""
    [line] = [line for line in Path(f"/proc/{of.pid}/status").read_text().splitlines() if line.startswith("NSpid:")]
    return int(line.split()[-1])


def enter(beside: Process, directory: Path) -> str:
    """A program that runs as an interpreter in the namespaces of a process, as by `docker exec`."""
    return _program(directory, "enter", f'exec nsenter --target {beside.pid} --pid --mount -- "{sys.executable}" "$@"')


# A name server


class NameServer:
    """Answers every question for an address with 127.0.0.1, when it does. It has a loopback address of its own."""

    def __init__(self) -> None:
        self.asked = 0
        self._answers = threading.Event()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.address = f"127.53.{secrets.randbelow(256)}.{secrets.randbelow(254) + 1}"
        self._socket.bind((self.address, 53))  # resolv.conf knows no port
        self._waiting: list[tuple[bytes, object]] = []
        self._thread = threading.Thread(target=self._serve, name="name server")
        self._thread.start()

    def be_silent(self) -> None:
        self._answers.clear()

    def answer(self) -> None:
        """From now on at once; and what has been asked meanwhile, late."""
        self._answers.set()
        for question, client in self._waiting:
            self._reply(question, client)
        self._waiting.clear()

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.sendto(b"", (self.address, 53))
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            question, client = self._socket.recvfrom(512)
            if not question:
                return
            self.asked += 1
            if self._answers.is_set():
                self._reply(question, client)
            else:
                self._waiting.append((question, client))

    def _reply(self, question: bytes, client: object) -> None:
        """RFC 1035: the question again, and for type A one answer; none for another type."""
        end = question.index(b"\0", 12) + 5
        (kind,) = struct.unpack("!H", question[end - 4 : end - 2])
        header = question[:2] + struct.pack("!HHHHH", 0x8180, 1, kind == 1, 0, 0)
        record = struct.pack("!HHHIH4B", 0xC00C, 1, 1, 0, 4, 127, 0, 0, 1) if kind == 1 else b""
        self._socket.sendto(header + question[12:end] + record, client)  # type: ignore[arg-type]


@contextmanager
def name_server() -> Iterator[NameServer]:
    server = NameServer()
    server.answer()
    try:
        yield server
    finally:
        server.close()


def with_name_server(server: NameServer, directory: Path, python: str = sys.executable, *, patience: int = 30) -> str:
    """A program whose names are resolved by that server alone; it waits `patience` seconds for an answer."""
    names, order = directory / "resolv.conf", directory / "nsswitch.conf"
    names.write_text(f"nameserver {server.address}\noptions timeout:{patience} attempts:1\n")
    order.write_text("hosts: files dns\n")
    return _program(
        directory,
        "with-name-server",
        'if [ "$1" != inside ]; then exec unshare --mount -- "$0" inside "$@"; fi',
        "shift",
        f'mount --bind "{names}" /etc/resolv.conf || exit 99',
        f'mount --bind "{order}" /etc/nsswitch.conf || exit 99',
        f'exec "{python}" "$@"',
    )


# A network


class Network:
    """A bridge of the machine's, and hosts that are network namespaces with a cable to it."""

    def __init__(self) -> None:
        self._mark = secrets.token_hex(3)
        # Of the net for benchmarks (RFC 2544), which nobody routes.
        self._prefix = f"198.{18 + secrets.randbelow(2)}.{secrets.randbelow(256)}"
        self.address = f"{self._prefix}.1"  # of the machine, for a server to listen on
        self._bridge = f"pb{self._mark}"
        self._hosts: list[str] = []
        # With a hardware address of its own: it would take a cable's, and that cable's end would still be met here.
        _ip(
            "link",
            "add",
            self._bridge,
            "address",
            f"02:00:00:{self._mark[:2]}:{self._mark[2:4]}:{self._mark[4:]}",
            "type",
            "bridge",
        )
        _ip("address", "add", f"{self.address}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")

    def host(self, name: str, directory: Path, python: str = sys.executable) -> str:
        """A program that runs on a new host."""
        self._hosts.append(name)
        space, cable = self._space(name), self._cable(name)
        _ip("netns", "add", space)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", cable, "master", self._bridge, "up")
        _ip("-n", space, "address", "add", f"{self._prefix}.{len(self._hosts) + 1}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", space, "link", "set", device, "up")
        # nsenter, where `ip netns exec` would also mount things.
        return _program(directory, f"on-{name}", f'exec nsenter --net=/run/netns/{space} -- "{python}" "$@"')

    def swallow(self, name: str) -> None:
        """Nothing passes from or to the host, and nobody is told: its cable is up, and ends nowhere."""
        _ip("link", "set", self._cable(name), "nomaster")

    def heal(self, name: str) -> None:
        _ip("link", "set", self._cable(name), "master", self._bridge)

    def close(self) -> None:
        for name in self._hosts:
            _ip("netns", "delete", self._space(name))
        _ip("link", "delete", self._bridge)

    def _space(self, name: str) -> str:
        return f"paceline-{self._mark}-{name}"

    def _cable(self, name: str) -> str:
        return f"p{self._mark}-{name}"[:15]  # IFNAMSIZ


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


@contextmanager
def network() -> Iterator[Network]:
    made = Network()
    try:
        yield made
    finally:
        made.close()
