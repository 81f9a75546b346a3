"""`make bench`: jobs per second of one queue, against a bare psycopg loop that does the same durable commits.

Both drain the same rows on the same server, in turn, several times; the ratio of each pair is what counts.
DATABASE_URL names another server (its table jobs is emptied); else a durable one is made and removed.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

from supervisor import embedded
from supervisor.db import connect
from supervisor.migrate import migrate
from supervisor.sql import statement

JOBS = 3_000
ROUNDS = 5
ROOT = Path(__file__).resolve().parents[2]


def fill(connection: psycopg.Connection) -> list[int]:
    connection.execute("TRUNCATE jobs")
    connection.execute(
        "INSERT INTO jobs (queue, name) SELECT 'bench', 'bench.Nothing' FROM generate_series(1, %s)", [JOBS]
    )
    return [id for (id,) in connection.execute("SELECT id FROM jobs ORDER BY id")]


def floor(connection: psycopg.Connection) -> float:
    """Jobs per second of the least that a queue can do: one durable commit that ends a job and claims the next."""
    ids = fill(connection)
    began = time.perf_counter()
    previous = 0
    for id in ids:
        parameters = {"id": previous, "status": "ok", "next": id}
        connection.execute(statement("finalize_and_claim"), parameters).fetchone()
        previous = id
    return JOBS / (time.perf_counter() - began)


def paceline(connection: psycopg.Connection, url: str, log: Path) -> tuple[float, float]:
    """Jobs per second of `paceline run --burst`, by its rows' own times; and transactions per job."""
    fill(connection)
    before = transactions(connection)
    environment = os.environ | {
        "DATABASE_URL": url,
        "PACELINE_REGISTRY": "tests.bench.registry",
        "PYTHONPATH": str(ROOT),
    }
    with log.open("w") as errors:
        command = [sys.executable, "-m", "supervisor", "run", "--burst"]
        subprocess.run(command, env=environment, stderr=errors, cwd=ROOT, check=True)
    [(done, seconds)] = connection.execute(
        "SELECT count(*), extract(epoch FROM max(finished_at) - min(started_at))::float8 FROM jobs WHERE status = 'ok'"
    ).fetchall()
    if done != JOBS:
        raise SystemExit(f"only {done} of {JOBS} jobs ended ok: see {log}")
    time.sleep(1.1)  # the server's statistics are up to a second late
    return JOBS / seconds, (transactions(connection) - before) / JOBS


def transactions(connection: psycopg.Connection) -> int:
    [(count,)] = connection.execute(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    ).fetchall()
    return int(count)


def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="paceline-bench-", dir="/tmp"))
    if os.geteuid() == 0:
        home.chmod(0o711)
    url = os.environ.get("DATABASE_URL") or embedded.start(home, delete=True)
    migrate(url, dedupe=frozenset())
    print(f"drain-1: {JOBS} jobs that do nothing, one queue, {ROUNDS} pairs")
    print("  floor jobs/s   paceline jobs/s   ratio   transactions per job")
    ratios = []
    with connect(url, "bench") as connection:
        for _ in range(ROUNDS):
            bare = floor(connection)
            ours, commits = paceline(connection, url, home / "paceline.log")
            ratios.append(ours / bare)
            print(f"  {bare:12.0f}   {ours:15.0f}   {ours / bare:5.2f}   {commits:20.2f}")
    print(f"median ratio {statistics.median(ratios):.2f} (least {min(ratios):.2f}, most {max(ratios):.2f})")


main()
