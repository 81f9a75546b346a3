"""A name server that answers late, or not at all: nothing in the parent waits for it, and all is back when it answers.

FAULTS 46, all of it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL

import pytest

from supervisor.worker import boottime
from tests.process.test_deaths import slot
from tests.support import namespaces
from tests.support.namespaces import NameServer, with_name_server
from tests.support.relay import Relay
from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import Paceline, RunSupervisor
from tests.support.wait import eventually

pytestmark = [pytest.mark.slow, namespaces.needs_namespaces]


@pytest.fixture
def names() -> Iterator[NameServer]:
    with namespaces.name_server() as opened:
        yield opened


@pytest.fixture
def url(relay: Relay) -> str:
    """The database by a name that only the name server knows."""
    assert "127.0.0.1" in relay.url
    return relay.url.replace("127.0.0.1", "database.test")


def test_a_silent_name_server_delays_neither_jobs_nor_restarts_nor_status_nor_a_drain(
    run_supervisor: RunSupervisor, run_paceline: Paceline, rows: Rows, names: NameServer, url: str, tmp_path: Path
) -> None:
    polls = {"TEST_POLL_INTERVAL": "0.5"}
    sup = run_supervisor("quick", "sleeps", "paced", url=url, env=polls, python=with_name_server(names, tmp_path))
    names.be_silent()
    asked = names.asked
    assert rows.cut_off("paceline:parent/%") >= 1
    eventually(lambda: names.asked > asked)  # the parent's helper, and it gets no answer
    for queue in ("sleeps", "paced", "paced"):  # at last one that asks for the database itself
        asked, before = names.asked, sup.child(queue)
        before.signal(SIGKILL)
        eventually(lambda queue=queue, before=before: sup.children().get(queue, before) != before, 5.0)
        eventually(lambda asked=asked: names.asked > asked)
    assert sup.parent.threads == 1
    job = rows.insert("quick", "quick.Ok")  # of the queue whose session stands
    eventually(lambda: rows.status(job) == "ok", 5.0)

    # A child that asks for the database's name is not stuck in its own loop, however long that takes.
    eventually(lambda: boottime() > slot(sup, "sleeps").child.turned + 6)
    (tmp_path / "status").mkdir()
    impatient = with_name_server(names, tmp_path / "status", patience=1)
    found = json.loads(run_paceline("status", "--json", url=url, python=impatient).stdout)
    assert found["database"]["trouble"].startswith("unreachable: ")
    assert [(parent["pid"], parent["state"]) for parent in found["parents"]] == [(sup.pid, "running")]
    states = {line["queue"]: (line["state"], line["attention"]) for line in found["queues"]}
    assert states["quick"] == ("idle", False)
    assert states["sleeps"] == ("waiting for the database", True)

    sup.terminate()
    eventually(lambda: "SIGTERM: draining" in sup.log(), 2.0)
    assert sup.wait(5.0) == 0


def test_a_boot_at_a_silent_name_server_waits_says_so_once_and_goes_on_when_it_answers(
    run_supervisor: RunSupervisor, rows: Rows, names: NameServer, url: str, tmp_path: Path
) -> None:
    names.be_silent()
    limited = program(tmp_path, call=0.5)
    sup = run_supervisor("quick", url=url, python=with_name_server(names, tmp_path, limited), ready=False)
    eventually(lambda: "boot: waiting for the database: " in sup.log())
    eventually(lambda: names.asked >= 4)  # it has asked again
    names.answer()
    sup.wait_ready()
    job = rows.insert("quick", "quick.Ok")
    eventually(lambda: rows.status(job) == "ok")
    assert sup.log().count(" ERROR ") == 1
    assert "boot: waiting for the database: over after" in sup.log()


def test_a_boot_at_a_silent_name_server_ends_when_told_to(
    run_supervisor: RunSupervisor, names: NameServer, url: str, tmp_path: Path
) -> None:
    names.be_silent()
    sup = run_supervisor("quick", url=url, python=with_name_server(names, tmp_path), ready=False)
    eventually(lambda: names.asked)
    sup.terminate()
    assert sup.wait(3.0) == 0
