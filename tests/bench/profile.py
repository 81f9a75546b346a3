"""profile: where the time of a job goes in drain-1, by differences of what is measured in one run.

- the server: the same statement and commit for each job, in a procedure, so that no word leaves the server;
- the wire: a prepared statement that does nothing, there and back by libpq;
- the driver: what the bare loop of drain-1 takes beyond these two: psycopg's Python;
- the engine: what Paceline takes beyond the bare loop. Of a job, the time outside of Session.execute is shown too.
"""

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from psycopg import pq

from supervisor.db import connect
from tests.bench.drains import BARE, QUEUE, bare, ours
from tests.bench.place import Database, Place
from tests.bench.processes import Service
from tests.bench.registry import NOTHING, TIMES
from tests.bench.table import Row, row
from tests.bench.timing import TAKE

# A finalize and the next claim as in sql/finalize_and_claim.sql, and a commit for each job.
_IN_THE_SERVER = """
DO $$
DECLARE
  ids bigint[] := ARRAY(SELECT id FROM jobs WHERE queue = 'bare' AND status = 'pending' ORDER BY id);
  this bigint;
  previous bigint := 0;
BEGIN
  FOREACH this IN ARRAY ids LOOP
    WITH ended AS (
      UPDATE jobs SET status = 'ok', finished_at = now() WHERE id = previous
    )
    UPDATE jobs SET status = 'started', started_at = now() WHERE id = this AND status = 'pending';
    previous := this;
    COMMIT;
  END LOOP;
  UPDATE jobs SET status = 'ok', finished_at = now() WHERE id = previous;
END
$$
"""


def in_the_server(database: Database, jobs: int) -> float:
    database.empty()
    database.fill(jobs, BARE)
    database.ask(_IN_THE_SERVER)
    return 1 / database.rate(BARE)


def on_the_wire(database: Database, times: int) -> float:
    with connect(database.url, "floor") as connection:
        pgconn = connection.pgconn
        pgconn.prepare(b"nothing", b"SELECT")
        began = time.perf_counter()
        for _ in range(times):
            answer = pgconn.exec_prepared(b"nothing", ())
            assert answer.status == pq.ExecStatus.TUPLES_OK
        return (time.perf_counter() - began) / times


def profile(place: Place, series: dict[str, Any]) -> Iterator[Row]:
    jobs = place.sizes.jobs
    taken: dict[str, list[float]] = {name: [] for name in ("server", "wire", "loop", "job", "python")}
    with place.database() as database:
        with place.service(database, QUEUE) as service:
            for _ in range(place.sizes.rounds):
                taken["server"].append(in_the_server(database, jobs))
                taken["wire"].append(on_the_wire(database, jobs))
                database.empty()
                taken["loop"].append(1 / bare(database, jobs))
                database.empty()
                taken["job"].append(1 / ours(database, service, jobs, QUEUE))
        database.empty()
        place.output.write_text("")
        with place.service(database, QUEUE, env={TAKE: "1"}) as service:
            for _ in range(place.sizes.rounds):
                taken["python"].append(outside_of_execute(place, database, service))
    found = {name: median(values) * 1e6 for name, values in taken.items()}
    for name, microseconds in {
        "server: statement and commit": found["server"],
        "wire: there and back": found["wire"],
        "driver: the bare loop's rest": found["loop"] - found["server"] - found["wire"],
        "engine: beyond the bare loop": found["job"] - found["loop"],
        "all of a job": found["job"],
    }.items():
        yield row("profile", f"us, {name}", microseconds, ratio=microseconds / found["job"])
    yield row("profile", "us, a child outside of execute", found["python"], note="its Python, the driver's not counted")
    series["profile"] = found


def outside_of_execute(place: Place, database: Database, service: Service) -> float:
    """Seconds per job that a child spends elsewhere than in its session's execute, between two looks at its times."""
    jobs, before = place.sizes.jobs, service.finished()
    database.ask(
        "INSERT INTO jobs (queue, name) SELECT %s, CASE WHEN number IN (0, %s) THEN %s ELSE %s END"
        " FROM generate_series(0, %s) AS number",
        *(QUEUE, jobs + 1, TIMES, NOTHING, jobs + 1),
    )
    service.wait_finished(before + jobs + 2)
    lines = [line.split() for line in place.output.read_text().splitlines()]
    last = max(number for number, line in enumerate(lines) if line[0] == "all")
    everything, *statements = [float(seconds) for _, _, seconds in lines[last:]]
    return (everything - sum(statements)) / jobs
