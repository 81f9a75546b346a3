"""Probes and metrics: what an orchestrator and a monitor read, and that serving them costs no job anything."""

import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.processes import Process
from tests.support.relay import Relay
from tests.support.rows import Rows
from tests.support.run_limited import program
from tests.support.supervised import Paceline, RunSupervisor, Supervised
from tests.support.wait import eventually


@dataclass(frozen=True)
class Web:
    """The port of a parent's web process."""

    port: int

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def code(self, path: str) -> int:
        return self.get(path)[0]

    def metrics(self) -> dict[tuple[str, ...], float]:
        """The samples, by name and label values in the order of the labels' names."""
        status, text = self.get("/metrics")
        assert status == 200
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return {
            (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value for sample in samples
        }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def web() -> Iterator[Web]:
    yield Web(free_port())


def web_process(sup: Supervised) -> Process:
    return next(child for child in sup.parent.children if child.title == "paceline: web")


@pytest.mark.slow
def test_probes_tell_a_dead_database_a_hung_child_and_a_crash_loop_and_livez_stays_green(
    run_supervisor: RunSupervisor, web: Web, rows: Rows, relay: Relay
) -> None:
    sup = run_supervisor(
        "quick", "crash", url=relay.url, flags=["--web", f"127.0.0.1:{web.port}"], env={"TEST_POLL_INTERVAL": "0.5"}
    )

    def red_for(fault: str) -> bool:
        assert web.code("/livez") == 200
        status, text = web.get("/healthz")
        return status == web.code("/readyz") == 503 and bool(re.search(fault, text, re.MULTILINE))

    def green() -> bool:
        return web.get("/healthz") == (200, "ok\n") and web.code("/readyz") == 200

    eventually(green)
    sup.child("quick").signal(SIGSTOP)
    eventually(lambda: red_for(r"^quick: not turning for \d+s$"), 20)
    sup.child("quick").signal(SIGCONT)
    eventually(green)

    relay.refuse()
    relay.cut()
    eventually(lambda: red_for("^the database is out of reach, or LISTEN is lost$"))
    eventually(lambda: red_for("^quick: waiting for the database: .*refused"))
    assert web.metrics()["paceline_database_up",] == 0
    relay.resume()
    eventually(green)

    rows.insert_many(3, "crash", "crash.Exit")
    eventually(lambda: red_for(r"^crash: backing off \d+s \(exit 3, 3 deaths\)$"))
    eventually(green)


@pytest.mark.slow
def test_livez_turns_red_for_a_stopped_parent_and_health_says_the_same(
    run_supervisor: RunSupervisor, run_paceline: Paceline, web: Web
) -> None:
    sup = run_supervisor("quick", flags=["--web", f"127.0.0.1:{web.port}"])
    for command in (("health",), ("health", "--live")):
        done = run_paceline(*command)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
    sup.signal(SIGSTOP)
    eventually(lambda: web.code("/livez") == 503, 30)
    assert re.fullmatch(r"the parent's loop has not turned for \d+s\n", web.get("/livez")[1])
    done = run_paceline("health", "--live")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"paceline: the parent's loop has not turned for \d+s\n", done.stderr)
    sup.signal(SIGCONT)
    eventually(lambda: web.code("/livez") == 200)


def test_health_without_a_service_says_so(run_paceline: Paceline) -> None:
    done = run_paceline("health")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "paceline: no service runs here\n")


@pytest.mark.slow
def test_a_boot_without_a_database_is_live_and_not_ready_and_a_drain_is_not_ready(
    run_supervisor: RunSupervisor, web: Web, rows: Rows, relay: Relay
) -> None:
    relay.refuse()
    sup = run_supervisor("sleeps", url=relay.url, flags=["--web", f"127.0.0.1:{web.port}"], ready=False)
    eventually(lambda: web.get("/readyz") == (503, "the boot is not over\n"))
    assert web.code("/livez") == 200
    relay.resume()
    eventually(lambda: web.code("/readyz") == 200)
    running = rows.insert("sleeps", "sleeps.Sleep", {"seconds": 2})
    eventually(lambda: rows.status(running) == "started")
    sup.terminate()
    eventually(lambda: web.get("/readyz") == (503, "draining\n"))
    assert (web.code("/livez"), web.code("/healthz")) == (200, 200)
    assert sup.wait() == 0
    assert rows.status(running) == "ok"


@pytest.mark.slow
def test_a_standby_and_a_paused_queue_are_well(run_supervisor: RunSupervisor, run_paceline: Paceline, web: Web) -> None:
    run_supervisor("quick", host="host-a")
    second = run_supervisor("quick", host="host-b", flags=["--web", f"127.0.0.1:{web.port}"])
    eventually(lambda: "standby" in second.child("quick").title)
    assert web.code("/healthz") == 200
    assert web.metrics()["paceline_lease_held", "quick"] == 0
    assert run_paceline("pause", "quick").returncode == 0
    assert web.code("/healthz") == 200


@pytest.mark.slow
def test_metrics_count_jobs_by_outcome_and_the_rows_that_wait(
    run_supervisor: RunSupervisor, run_paceline: Paceline, web: Web, rows: Rows
) -> None:
    sup = run_supervisor("quick", flags=["--web", f"127.0.0.1:{web.port}"])
    jobs = [rows.insert("quick", "quick.Ok"), rows.insert("quick", "quick.Ok")]
    jobs += [rows.insert("quick", "quick.Fail", {"text": "no"}), rows.insert("quick", "quick.Unknown")]
    rows.insert("nobody", "n.N", age=100)
    eventually(lambda: all(rows.status(id) not in ("pending", "started") for id in jobs))
    dead = sup.child("quick")
    dead.signal(SIGKILL)  # the counts outlive it
    eventually(lambda: sup.child("quick") != dead)
    found = eventually(lambda: (now := web.metrics())["paceline_lease_held", "quick"] == 1 and now)
    counted = {outcome: found["paceline_jobs_total", outcome, "quick"] for outcome in ("ok", "fail", "skip", "err")}
    assert counted == {"ok": 2, "fail": 1, "skip": 0, "err": 1}
    for histogram in ("latency", "duration"):
        assert found[f"paceline_{histogram}_seconds_count", "quick"] == 4
        assert found[f"paceline_{histogram}_seconds_bucket", "+Inf", "quick"] == 4
        assert found[f"paceline_{histogram}_seconds_sum", "quick"] >= 0
    assert (found["paceline_deaths_total", "quick"], found["paceline_starts_total", "quick"]) == (1, 2)
    assert (found["paceline_listening",], found["paceline_database_up",]) == (1, 1)
    assert found["paceline_pending_jobs", "nobody"] == 1
    assert 100 <= found["paceline_oldest_pending_seconds", "nobody"] < 200
    run_paceline("pause", "quick")
    assert web.metrics()["paceline_paused", "quick"] == 1


@pytest.mark.slow
def test_the_web_process_killed_a_hundred_times_is_noticed_by_no_job(
    run_supervisor: RunSupervisor, web: Web, rows: Rows, tmp_path: Path
) -> None:
    sup = run_supervisor("quick", python=program(tmp_path, spell=0.01), flags=["--web", str(web.port)])
    before, killed = sup.child("quick"), set[int]()
    jobs = []
    for _ in range(100):
        process = eventually(lambda: web_process(sup))
        process.signal(SIGKILL)
        killed.add(process.pid)
        jobs.append(rows.insert("quick", "quick.Ok"))
        eventually(lambda pid=process.pid: web_process(sup).pid != pid)
    eventually(lambda: all(rows.status(id) == "ok" for id in jobs))
    assert len(killed) == 100
    assert sup.child("quick") == before
    eventually(lambda: web.code("/livez") == 200)


@pytest.mark.slow
def test_a_client_that_says_nothing_keeps_no_probe_from_its_answer(run_supervisor: RunSupervisor, web: Web) -> None:
    run_supervisor("quick", flags=["--web", f"127.0.0.1:{web.port}"])
    silent = [socket.create_connection(("127.0.0.1", web.port)) for _ in range(20)]
    assert web.code("/livez") == 200
    assert web.get("/other") == (404, "/livez /readyz /healthz /metrics\n")
    for connection in silent:
        connection.close()


def test_an_address_that_is_taken_or_none_is_refused_in_one_line(run_paceline: Paceline) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for address, why in ((f"127.0.0.1:{port}", "Address already in use"), ("8080", "HOST:PORT")):
            done = run_paceline("run", "quick", "--web", address)
            assert (done.returncode, done.stdout) == (2, "")
            [line] = done.stderr.splitlines()
            assert why in line


@pytest.mark.slow
def test_systemd_is_told_of_readiness_of_each_turn_and_of_the_drain(
    run_supervisor: RunSupervisor, rows: Rows, tmp_path: Path
) -> None:
    """sd_notify(3)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(10)
        sup = run_supervisor("quick", env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "5000000"})
        told = until(systemd, "READY=1")
        assert set(told) <= {"READY=1", "WATCHDOG=1"}
        until(systemd, "WATCHDOG=1")
        sup.signal(SIGTERM)
        until(systemd, "STOPPING=1")
        assert sup.wait() == 0


def until(systemd: socket.socket, wanted: str) -> list[str]:
    told: list[str] = []
    give_up = time.monotonic() + 10
    while wanted not in told and time.monotonic() < give_up:
        told.append(systemd.recv(100).decode())
    assert wanted in told
    return told
