"""A server's clock that a test sets: what the engine's `clock_timestamp()` says, in real processes of any number.

It stands still, a moment before the end of a minute, so that every clock that waits for the next one looks again soon.
"""

from datetime import datetime, timedelta

from tests.support.rows import Rows

_BEFORE = timedelta(seconds=0.05)  # how often clocks look, then

# Before pg_catalog on the search path. The times of rows come from now(), which stays what it is.
_MAKE = """
CREATE SCHEMA fast;
CREATE TABLE fast.clock AS SELECT pg_catalog.clock_timestamp() AS now;
CREATE FUNCTION fast.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT now FROM fast.clock';
DO $$ BEGIN
  EXECUTE format('ALTER DATABASE %I SET search_path = fast, pg_catalog, public', current_database());
END $$;
"""


class FastClock:
    """Made before the processes that are to see it connect."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        rows.execute(_MAKE)

    def stand_in(self, minute: datetime) -> None:
        """From now on it is the end of this minute."""
        self._rows.execute("UPDATE fast.clock SET now = %s", minute + timedelta(minutes=1) - _BEFORE)
