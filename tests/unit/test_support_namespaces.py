"""The network and the name server of the test support do what their names say."""

import socket
import subprocess
from pathlib import Path

import pytest

from tests.support import namespaces

pytestmark = [pytest.mark.slow, namespaces.needs_namespaces]

# Sends from the port given a datagram to the address given, and prints the answer.
ASK = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
    asking.settimeout(0.5)
    asking.sendto(b"question", (sys.argv[1], int(sys.argv[2])))
    print(asking.recv(100).decode())
"""


def test_a_swallowed_host_neither_reaches_the_machine_nor_is_reached_until_it_is_healed(tmp_path: Path) -> None:
    with namespaces.network() as net, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as machine:
        machine.bind((net.address, 0))
        machine.settimeout(0.5)
        program = net.host("a", tmp_path)
        port = str(machine.getsockname()[1])

        def ask() -> "subprocess.Popen[str]":
            command = [program, "-c", ASK, net.address, port]
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

        for swallowed in (False, True, False):
            if swallowed:
                net.swallow("a")
            else:
                net.heal("a")
            with ask() as asking:
                if swallowed:
                    with pytest.raises(TimeoutError):
                        machine.recvfrom(100)
                else:
                    question, address = machine.recvfrom(100)
                    assert question == b"question"
                    machine.sendto(b"answer", address)
                assert asking.stdout is not None
                assert asking.stdout.read() == ("" if swallowed else "answer\n")


def test_the_other_direction_is_swallowed_too(tmp_path: Path) -> None:
    """What the machine sends to a host that was swallowed meanwhile."""
    with namespaces.network() as net, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as machine:
        machine.bind((net.address, 0))
        machine.settimeout(5)
        command = [net.host("a", tmp_path), "-c", ASK, net.address, str(machine.getsockname()[1])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as asking:
            _, address = machine.recvfrom(100)
            net.swallow("a")
            machine.sendto(b"answer", address)
            assert asking.stdout is not None
            assert asking.stdout.read() == ""


def test_a_name_is_resolved_by_the_name_server_alone(tmp_path: Path) -> None:
    with namespaces.name_server() as names:
        resolve = "import socket; print(socket.gethostbyname('database.test'))"
        program = namespaces.with_name_server(names, tmp_path, patience=1)
        answered = subprocess.run([program, "-c", resolve], capture_output=True, text=True, check=False)
        assert (answered.stdout, names.asked) == ("127.0.0.1\n", 1)
        names.be_silent()
        unanswered = subprocess.run([program, "-c", resolve], capture_output=True, text=True, check=False)
        assert unanswered.stdout == ""
        assert names.asked == 2
