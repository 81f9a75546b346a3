"""Gates inside the server: a closed one holds the engine's claim or finalize within its statement.

A lock would hold it for its lock_timeout only; a gate holds until it is opened, or its session is terminated.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from tests.support.rows import Rows
from tests.support.wait import eventually

Step = Literal["claim", "finalize"]

# Before the row changes, so that nobody sees it changed. Each query of the loop has a snapshot of its own.
_MAKE = """
CREATE TABLE gate (step text PRIMARY KEY);
GRANT SELECT ON gate TO PUBLIC;
CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  WHILE EXISTS (
    SELECT FROM gate
    WHERE step = CASE WHEN NEW.status = 'started' THEN 'claim' WHEN OLD.status = 'started' THEN 'finalize' END
  ) LOOP
    PERFORM pg_sleep(0.005);
  END LOOP;
  RETURN NEW;
END
$$;
CREATE TRIGGER gate BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION wait_at_gate();
"""


class Gate:
    """A closed gate."""

    def __init__(self, rows: Rows, step: Step) -> None:
        self._rows, self._step = rows, step

    def wait_for(self, queue: str) -> None:
        """Until a session of the queue stands at it."""
        eventually(
            lambda: self._rows.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
                " AND starts_with(application_name, %s)",
                f"paceline:{queue}/",
            )
        )

    def open(self) -> None:
        self._rows.execute("DELETE FROM gate WHERE step = %s", self._step)


@contextmanager
def closed(rows: Rows, step: Step) -> Iterator[Gate]:
    """Closes it; opened at the latest at the end."""
    if not rows.execute("SELECT 1 FROM pg_trigger WHERE tgrelid = 'jobs'::regclass AND tgname = 'gate'"):
        rows.execute(_MAKE)
    rows.execute("INSERT INTO gate VALUES (%s)", step)
    gate = Gate(rows, step)
    try:
        yield gate
    finally:
        gate.open()
