"""A host whose traffic is swallowed for good in mid-job, with another at hand; and what becomes of it when healed.

That no two jobs were at once is told by a file that their handlers write to, not by the database.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from supervisor.migrate import migrate
from tests.support import namespaces, server
from tests.support.queues_beats import beats
from tests.support.relay import Relay
from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import RunSupervisor, Supervised
from tests.support.wait import eventually

pytestmark = pytest.mark.slow  # the whole file

BEATS = "tests.support.queues_beats"
TIMEOUT, GRACE, MARGIN = 1.0, 0.5, 5.0  # seconds; the last is the engine's own


@dataclass
class Hosts:
    """A database, and host-a, whose way to it can be cut."""

    url: str  # of the test, and of host-b
    url_of_a: str
    python_of_a: str
    swallow: Callable[[], None]
    heal: Callable[[], None]


LayOut = Callable[[str, str, Path], AbstractContextManager[Hosts]]


@contextmanager
def by_relay(url: str, limited: str, directory: Path) -> Iterator[Hosts]:
    with Relay(url) as way:

        def heal() -> None:
            way.resume()
            way.cut()  # a stream with a hole in it cannot go on

        yield Hosts(url, way.url, limited, way.drop, heal)


@contextmanager
def by_namespace(url: str, limited: str, directory: Path) -> Iterator[Hosts]:
    """host-a is a network namespace of its own, and its packets are lost on the way."""
    with namespaces.network() as net, server.home() as home:
        postgres = server.Server(home, {"listen_addresses": net.address})
        postgres.make()
        with (postgres.data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all samenet trust\n")
        postgres.start()
        try:
            migrate(postgres.url, dedupe=frozenset())
            tcp = f"postgresql://postgres@{net.address}/postgres"
            python = net.host("a", directory, limited)
            yield Hosts(tcp, tcp, python, lambda: net.swallow("a"), lambda: net.heal("a"))
        finally:
            postgres.stop("immediate")


def state(sup: Supervised) -> str:
    return sup.child("beats").title.removeprefix("paceline: beats ")


# The relay is there for those who cannot make namespaces: it shows the same, but for what the kernel does.
@pytest.mark.parametrize(
    "lay_out",
    [
        pytest.param(by_relay, marks=pytest.mark.skipif(not namespaces.missing, reason="by namespaces here")),
        pytest.param(by_namespace, marks=namespaces.needs_namespaces),
    ],
    ids=["relay", "namespace"],
)
def test_a_host_that_is_cut_off_in_mid_job_is_succeeded_after_its_deadline_and_stands_by_when_healed(
    run_supervisor: RunSupervisor, database: str, tmp_path: Path, lay_out: LayOut
) -> None:
    """FAULTS 33: its handler heeds no deadline, so that it is the kernel there that ends it."""
    limited, file = program(tmp_path, grace=GRACE, settle=0.2), tmp_path / "beats"
    with lay_out(database, limited, tmp_path) as hosts:
        rows = Rows(hosts.url)
        env = {"TEST_JOB_TIMEOUT": f"{TIMEOUT:g}"}
        a = run_supervisor(
            "beats", url=hosts.url_of_a, host="host-a", python=hosts.python_of_a, env=env, registry=BEATS
        )
        b = run_supervisor("beats", url=hosts.url, host="host-b", python=limited, env=env, registry=BEATS)
        eventually(lambda: state(b) == "standby (lease: host-a)")
        cut_off = rows.insert("beats", "beats.Beat", {"file": str(file), "seconds": 600})
        following = rows.insert("beats", "beats.Beat", {"file": str(file), "seconds": 0.1})
        eventually(lambda: beats(file))
        hosts.swallow()
        # What the server itself does when its keepalives have gone unanswered for half a minute.
        assert rows.cut_off("paceline:%@host-a") >= 2
        eventually(lambda: ", which another host may be running" in state(b), 5.0)
        assert rows.status(cut_off) == "started"
        eventually(lambda: rows.status(following) == "ok", TIMEOUT + GRACE + MARGIN + 5)
        on_a = [beat.moment for beat in beats(file) if beat.host == "host-a"]
        on_b = [beat.moment for beat in beats(file) if beat.host == "host-b"]
        assert {(beat.host, beat.id) for beat in beats(file)} == {("host-a", cut_off), ("host-b", following)}
        assert on_a[-1] - on_a[0] > TIMEOUT  # it ran on, cut off and past its deadline
        assert on_b[0] - on_a[0] >= TIMEOUT + GRACE + MARGIN - 1  # the row is dated before the first beat
        assert on_b[0] > on_a[-1]
        assert rows.status(cut_off) == "err: interrupted"

        hosts.heal()
        eventually(lambda: state(a) == "standby (lease: host-b)", 20)
        last = rows.insert("beats", "beats.Beat", {"file": str(file)})
        eventually(lambda: rows.status(last) == "ok")
        assert beats(file)[-1].host == "host-b"
        assert [beat.moment for beat in beats(file) if beat.host == "host-a"] == on_a
        assert rows.status(cut_off) in ("err: interrupted", f"err: timeout after {TIMEOUT:g}s")
        for sup in (b, a):
            sup.terminate()
            assert sup.wait() == 0
        rows.close()
