"""A child's connection: host by host and address by address, each within its time, while other threads go on."""

import socket
import time
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import pq
from psycopg.conninfo import make_conninfo

from supervisor.child.connecting import Hosts
from tests.support.relay import Relay


@pytest.fixture
def relay(database: str) -> Iterator[Relay]:
    with Relay(database) as opened:
        yield opened


def _closed_port() -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return str(unused.getsockname()[1])


def _port(relay: Relay) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(relay.url)["port"])


def _connect(url: str, **params: str) -> pq.abc.PGconn:
    return Hosts(make_conninfo(url, **params)).connect()


def test_the_second_host_is_asked_where_the_first_refuses(relay: Relay) -> None:
    ports = f"{_closed_port()},{_port(relay)}"
    pgconn = _connect(relay.url, host="127.0.0.1,127.0.0.1", port=ports)
    assert pgconn.status == pq.ConnStatus.OK
    assert pgconn.port == _port(relay).encode()
    pgconn.finish()


def test_the_second_host_is_asked_once_the_first_has_been_silent_for_connect_timeout(
    relay: Relay, database: str
) -> None:
    with Relay(database) as silent:
        silent.stall()
        began = time.monotonic()
        ports = f"{_port(silent)},{_port(relay)}"
        pgconn = _connect(relay.url, host="127.0.0.1,127.0.0.1", port=ports, connect_timeout="2")
        assert time.monotonic() - began > 1.9
        assert pgconn.port == _port(relay).encode()
        pgconn.finish()


def test_each_address_of_a_name_is_tried(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    def addresses(name: str, port: str, **_: object) -> list[object]:
        assert (name, port) == ("database.test", _port(relay))
        return [(None, None, None, "", (each, int(port))) for each in ("127.0.0.2", "127.0.0.1", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    pgconn = _connect(relay.url, host="database.test")
    assert (pgconn.host, pgconn.hostaddr) == (b"database.test", b"127.0.0.1")
    pgconn.finish()


def test_what_every_host_had_to_say_is_told(relay: Relay) -> None:
    ports = f"{_port(relay)},{_closed_port()}"
    with pytest.raises(psycopg.OperationalError) as raised:
        _connect(relay.url, host="nowhere.invalid,127.0.0.1", port=ports)
    assert "failed to resolve host 'nowhere.invalid'" in str(raised.value)
    assert "Connection refused" in str(raised.value)


def test_hosts_come_from_the_environment_too(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "127.0.0.2,127.0.0.1")
    monkeypatch.setenv("PGPORT", _port(relay))
    params = psycopg.conninfo.conninfo_to_dict(relay.url)
    pgconn = _connect("", **{key: str(value) for key, value in params.items() if key not in ("host", "port")})
    assert pgconn.host == b"127.0.0.1"
    pgconn.finish()


def test_lists_that_do_not_match_are_for_libpq_to_refuse(relay: Relay) -> None:
    with pytest.raises(psycopg.OperationalError, match="could not match 2 port numbers to 3 hosts"):
        _connect(relay.url, host="127.0.0.1,127.0.0.1,127.0.0.1", port="1,2")
