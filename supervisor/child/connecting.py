"""How a child connects: host by host and address by address, each within connect_timeout, by libpq itself.

psycopg.connect() does the same, and its Python is 0.6 MB of copied pages in each child: it parses and makes a conninfo
several times for each address. Here that is done once, in the parent: all but the addresses, which may change.
"""

import os
import random
import select
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from typing import NamedTuple

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

_SHORTEST, _LONGEST = 2.0, 130.0  # seconds; the longest is where connect_timeout sets no limit


class Host(NamedTuple):
    """One of a conninfo's hosts."""

    conninfo: str  # for it alone
    name: str = ""  # whose addresses are to be asked for; empty for a socket, and where the address is given
    port: str = ""


class Hosts:
    """Where a conninfo leads to."""

    def __init__(self, conninfo: str) -> None:
        params = conninfo_to_dict(conninfo)

        def values(key: str, variable: str) -> list[str]:
            return str(params.get(key, os.environ.get(variable, ""))).split(",")

        names, addresses = values("host", "PGHOST"), values("hostaddr", "PGHOSTADDR")
        ports = values("port", "PGPORT")
        count = max(len(names), len(addresses))
        lists = [each * count if len(each) == 1 else each for each in (names, addresses, ports)]
        if any(len(each) != count for each in lists):
            lists, count = [[""]] * 3, 1  # libpq has the words for it
        self._hosts = []
        for name, address, port in zip(*lists, strict=True):
            its = make_conninfo(conninfo, host=name, hostaddr=address, port=port) if count > 1 else conninfo
            self._hosts.append(Host(its, "" if address or not _is_name(name) else name, port))
        self._limit = _limit(str(params.get("connect_timeout", "")))
        self._shuffled = params.get("load_balance_hosts", os.environ.get("PGLOADBALANCEHOSTS")) == "random"

    def connect(self) -> pq.abc.PGconn:
        """A connection to the first host that gives one. Raises psycopg.Error."""
        refusals = list[psycopg.OperationalError]()
        for conninfo in self._each(refusals):
            try:
                return _connect(conninfo, self._limit)
            except psycopg.OperationalError as error:
                refusals.append(error)
        raise refusals[0] if len(refusals) == 1 else psycopg.OperationalError("\n".join(map(str, refusals)))

    def _each(self, refusals: list[psycopg.OperationalError]) -> Iterator[str]:
        """A conninfo for each address; a name without one is a refusal."""
        for host in random.sample(self._hosts, len(self._hosts)) if self._shuffled else self._hosts:
            if not host.name:
                yield host.conninfo
                continue
            try:
                found = socket.getaddrinfo(host.name, host.port or "5432", type=socket.SOCK_STREAM)
            except OSError as error:
                refusals.append(psycopg.OperationalError(f"failed to resolve host {host.name!r}: {error}"))
                continue
            addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
            for address in random.sample(addresses, len(addresses)) if self._shuffled else addresses:
                yield f"{host.conninfo} hostaddr={address}"


def _connect(conninfo: str, limit: float) -> pq.abc.PGconn:
    """Not PGconn.connect(), which waits with the GIL held: a handler's threads would stand still."""
    pgconn = pq.PGconn.connect_start(conninfo.encode())
    try:
        give_up = time.monotonic() + limit
        while (state := pgconn.connect_poll()) != pq.PollingStatus.OK:
            if state == pq.PollingStatus.FAILED:
                raise psycopg.OperationalError(f"connection failed: {pgconn.get_error_message()}")
            poll = select.poll()  # each time: libpq may have gone on to another socket
            poll.register(pgconn.socket, select.POLLIN if state == pq.PollingStatus.READING else select.POLLOUT)
            if not poll.poll(max(0.0, give_up - time.monotonic()) * 1000):
                raise psycopg.errors.ConnectionTimeout("connection timeout expired")
        pgconn.nonblocking = 1
    except psycopg.Error:
        pgconn.finish()
        raise
    return pgconn


def _limit(connect_timeout: str) -> float:
    seconds = 0
    with suppress(ValueError):  # by then the parent's own session has refused it
        seconds = int(connect_timeout)
    return max(_SHORTEST, float(seconds)) if seconds > 0 else _LONGEST


def _is_name(host: str) -> bool:
    if not host or host.startswith(("/", "@")):
        return False
    try:
        ip_address(host)
    except ValueError:
        return True
    return False
