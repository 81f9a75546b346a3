"""A claim that was carried out and whose answer never came, on a host that is not alone: nobody runs it."""

from pathlib import Path
from signal import SIGKILL

import pytest

from tests.process.test_two_parents import stands_by
from tests.support import gates, ledger
from tests.support.relay import Relay
from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually

REGISTRY = "tests.support.queues_direct"
KILLED, CUT = "ledger", "ledger-b"  # what happens to the child of each


@pytest.mark.slow
def test_where_another_host_was_met_a_claim_without_an_answer_waits_for_its_deadline_and_is_interrupted(
    rows: Rows, relay: Relay, run_supervisor: RunSupervisor, tmp_path: Path
) -> None:
    """FAULTS 43: one statement ends one job and claims the next; nobody can tell whose the started row is.

    One child is killed before the answer comes. The other's connection is lost: not even the process that sent the
    claim may run it.
    """
    limited = program(tmp_path, settle=0.2, fresh=60)
    direct = {"TEST_DIRECT_URL": rows.url}
    a = run_supervisor(url=relay.url, registry=REGISTRY, env=direct, python=limited, host="host-a")
    b = run_supervisor(registry=REGISTRY, env=direct, python=limited, host="host-b")
    eventually(lambda: all(stands_by(b, queue, "host-a") for queue in (KILLED, CUT)))
    eventually(lambda: "another parent is here" in a.log())
    with gates.closed(rows, "finalize") as gate:
        jobs = {queue: rows.insert_many(3, queue, "ledger.Append") for queue in (KILLED, CUT)}
        for queue in jobs:
            gate.wait_for(queue)
        relay.stall("client")
    eventually(lambda: all(rows.statuses(queue) == ["ok", "started", "pending"] for queue in jobs))
    a.child(KILLED).signal(SIGKILL)
    relay.cut()
    relay.resume()

    def waits(queue: str) -> bool:
        titles = (a.child(queue).title, b.child(queue).title)
        return any(", which another host may be running" in title for title in titles)

    eventually(lambda: all(waits(queue) for queue in jobs))
    for queue, (first, second, third) in jobs.items():
        assert rows.statuses(queue) == ["ok", "started", "pending"]
        # Its deadline is far: 300 s, the grace of 10 s and 5 s more.
        rows.execute("UPDATE jobs SET started_at = started_at - interval '312 s' WHERE id = %s", second)
        eventually(lambda queue=queue: rows.statuses(queue) == ["ok", "err: interrupted", "ok"])
        assert [run.id for run in ledger.runs(rows, queue)] == [first, third]
    assert ledger.overlaps(rows) == []
