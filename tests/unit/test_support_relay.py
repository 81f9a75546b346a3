"""The relay of the test support: what each fault looks like from the client's end and from the server's."""

import os
import select
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tests.support.relay import Relay
from tests.support.rows import Rows
from tests.support.wait import eventually

pytestmark = pytest.mark.slow  # the whole file


@pytest.fixture(params=["tcp", "unix"])
def either_relay(request: pytest.FixtureRequest, database: str) -> Iterator[Relay]:
    with Relay(database, unix=request.param == "unix") as relay:
        yield relay


def _connect(relay: Relay, **more: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(relay.url, autocommit=True, **more)


def test_the_relay_forwards_to_the_same_database(either_relay: Relay, database: str) -> None:
    with _connect(either_relay) as near, psycopg.connect(database) as direct:
        assert near.info.dbname == direct.info.dbname
        assert (near.info.host, near.info.port) != (direct.info.host, direct.info.port)
        [(text,)] = near.execute("SELECT repeat('x', 5000000)").fetchall()
        assert len(text) == 5_000_000
        assert near.execute("SELECT length(%s)", ["y" * 5_000_000]).fetchone() == (5_000_000,)
        assert either_relay.connections == 1
    eventually(lambda: either_relay.connections == 0)


def test_a_cut_ends_connections_and_new_ones_are_served(either_relay: Relay) -> None:
    with closing(_connect(either_relay)) as cut:
        either_relay.cut()
        with pytest.raises(psycopg.OperationalError):
            cut.execute("SELECT 1")
    with _connect(either_relay) as new:
        assert new.execute("SELECT 1").fetchone() == (1,)


def test_a_cut_reaches_the_server_too(relay: Relay, rows: Rows) -> None:
    with closing(_connect(relay, application_name="far")):
        assert rows.sessions("far") == ["far"]
        relay.cut()
        eventually(lambda: rows.sessions("far") == [])


def test_a_stall_holds_what_comes_and_loses_nothing(either_relay: Relay, rows: Rows) -> None:
    with closing(_connect(either_relay)) as held:
        held.execute("SELECT 1")
        either_relay.stall()
        held.pgconn.send_query(b"SELECT 42")
        held.pgconn.flush()
        assert _stays_silent(held)
        either_relay.resume()
        # Before get_result(), which waits with the GIL held, so that the relay's thread could not run.
        assert select.select([held], [], [], 5.0)[0]
        held.pgconn.consume_input()
        result = held.pgconn.get_result()
        assert result is not None
        assert result.get_value(0, 0) == b"42"


def test_a_drop_is_silent_and_tells_the_server_nothing(relay: Relay, rows: Rows) -> None:
    with closing(_connect(relay, application_name="far")) as dropped:
        relay.drop()
        dropped.pgconn.send_query(b"SELECT 42")
        dropped.pgconn.flush()
        assert _stays_silent(dropped)
    assert rows.sessions("far") == ["far"]  # though its client has closed
    relay.resume()
    with _connect(relay) as new:
        assert new.execute("SELECT 1").fetchone() == (1,)
    assert rows.sessions("far") == ["far"]  # a stream with a hole stays silent
    relay.cut()
    eventually(lambda: rows.sessions("far") == [])


def test_a_connection_that_lost_nothing_in_a_drop_goes_on_after_it(relay: Relay) -> None:
    with _connect(relay) as idle:
        relay.drop()
        relay.resume()
        assert idle.execute("SELECT 1").fetchone() == (1,)


def test_a_drop_towards_the_client_loses_the_answer_only(relay: Relay, rows: Rows) -> None:
    with closing(_connect(relay)) as deaf:
        relay.drop("client")
        deaf.pgconn.send_query(b"INSERT INTO jobs (queue, name) VALUES ('quick', 'quick.Ok')")
        deaf.pgconn.flush()
        eventually(lambda: rows.statuses("quick") == ["pending"])
        assert _stays_silent(deaf)


def test_a_new_connection_in_a_drop_gets_no_answer(relay: Relay) -> None:
    relay.drop()
    with pytest.raises(psycopg.OperationalError, match="timeout"):
        _connect(relay, connect_timeout=2)


def test_a_refusal_ends_with_resume(either_relay: Relay) -> None:
    either_relay.refuse()
    with pytest.raises(psycopg.OperationalError):
        _connect(either_relay)
    either_relay.resume()
    with _connect(either_relay) as new:
        assert new.execute("SELECT 1").fetchone() == (1,)


def test_a_session_that_the_server_ends_ends_for_the_client(relay: Relay, rows: Rows) -> None:
    with closing(_connect(relay, application_name="far")) as ended:
        assert rows.cut_off("far") == 1
        with pytest.raises(psycopg.OperationalError):
            ended.execute("SELECT 1")
    eventually(lambda: relay.connections == 0)


def test_two_directions_are_stalled_one_by_one(relay: Relay, rows: Rows) -> None:
    with closing(_connect(relay)) as held:
        relay.stall("server")
        held.pgconn.send_query(b"INSERT INTO jobs (queue, name) VALUES ('quick', 'quick.Ok')")
        held.pgconn.flush()
        assert _stays_silent(held)
        assert rows.statuses("quick") == []
        relay.resume()
        eventually(lambda: rows.statuses("quick") == ["pending"])


def _stays_silent(connection: psycopg.Connection[Any], seconds: float = 0.3) -> bool:
    """Whether nothing comes for a while; a time-out is the only proof that there is of silence."""
    with socket.socket(fileno=os.dup(connection.fileno())) as watched:
        watched.settimeout(seconds)
        try:
            watched.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            watched.setblocking(False)  # the mode belongs to the socket, not to the copy
    return False
