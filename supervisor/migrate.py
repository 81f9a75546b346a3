"""The table `jobs`: made, adopted, upgraded by `paceline migrate`.

Nothing here may stop a service that is at work, so there are two ways to change a table that exists:

- CONCURRENTLY, for indexes. It waits for every transaction that is older than itself, for hours if need be,
  but no writer waits for it meanwhile. So it has no lock_timeout.
- Under a lock on the table, for the moment that a trigger or a constraint takes. Whoever comes while we wait
  for the lock queues behind us, so that wait is short, and the error names who was in the way.
"""

import socket
import time
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager, suppress
from typing import Any

import msgspec
import psycopg
from psycopg import sql
from psycopg.errors import LockNotAvailable, UniqueViolation

from supervisor.db import connect, session_name
from supervisor.errors import PacelineError, UsageError
from supervisor.log import log
from supervisor.schema import (
    CHECKS,
    COLUMNS,
    ID,
    INDEXES,
    Facts,
    Index,
    alike,
    dedupe_index,
    dedupe_names,
    flaws,
    listed,
)
from supervisor.sql import statement

LOCK_TIMEOUT = 5  # seconds
TURN_TIMEOUT = 600  # seconds to wait for another migrate
AGAIN = "run `paceline migrate` again"

REQUIRED = ("queue", "name", "args", "status", "created_at")
DEFAULTS = {"args": "'{}'", "status": "'pending'", "created_at": "now()"}

ADVICE = {
    "jobs_id": "give each row an id of its own",
    "jobs_clock": "delete the repeated rows",
    "jobs_dedupe": "cancel the repeated rows or let them finish",
}

NOTIFY = statement("function_jobs_notify").decode().split("$$")[1]


def migrate(url: str, *, dedupe: AbstractSet[str], upgrade: str | None = None, prune: bool = False) -> list[str]:
    """Bring the table to what this version needs; lines that say what was done, none if it was all there.

    `dedupe` are the declared job names; others in the index stay unless `prune`. `upgrade` is the time zone that
    an older table's times are in: its columns change to today's types, which rewrites it under a lock.

    Raises PacelineError, whose one line says what to do; UsageError for an unknown time zone.
    """
    try:
        connection = connect(url, session_name("migrate", "0", socket.gethostname()))
    except psycopg.Error as error:
        raise PacelineError(f"cannot connect, check DATABASE_URL: {_one_line(error)}") from None
    with closing(connection):
        connection.prepare_threshold = None
        try:
            _take_turn(connection)
            return _Migration(connection).run(dedupe, upgrade, prune)
        except psycopg.Error as error:
            raise PacelineError(f"{_one_line(error)}: put that right and {AGAIN}") from None


def _take_turn(connection: psycopg.Connection[Any]) -> None:
    give_up, seconds = time.monotonic() + TURN_TIMEOUT, 0.0
    while not connection.execute(statement("take_turn")).fetchall()[0][0]:
        if not seconds:
            log.info("another migrate is at work on this database, waiting for it")
        if time.monotonic() > give_up:
            holder = "pg_stat_activity shows its session as paceline:migrate"
            raise PacelineError(f"another migrate is still at work after {TURN_TIMEOUT} s, {holder}: {AGAIN} after it")
        time.sleep(seconds := 0.1)


class _Migration:
    """One run, on a session that has the turn."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.done: list[str] = []
        self.set_lock_timeout(LOCK_TIMEOUT)
        self.facts = self.check_schema()

    def run(self, dedupe: AbstractSet[str], upgrade: str | None, prune: bool) -> list[str]:
        if upgrade is not None:
            zone = self.connection.execute(statement("zone_name"), {"zone": upgrade}).fetchone()
            if not zone:
                raise UsageError(f"unknown time zone {upgrade!r}: give its full name, such as UTC or Asia/Kolkata")
            (upgrade,) = zone
        if found := flaws(self.facts):
            raise PacelineError(f"{'; '.join(found)}: change that, or point DATABASE_URL at another database")
        # Everything of ours goes where the table is, though the search_path may have another schema first.
        self.connection.execute(f"SET search_path = {sql.Identifier(str(self.facts.schema)).as_string()}")
        if self.facts.kind is None:
            self.create(dedupe)
        else:
            self.drop_leftovers()
            self.adopt()
            self.dedupe(dedupe, prune)
            self.advance_sequence()
            if upgrade:
                self.upgrade(upgrade)
        return self.done

    def ask(self, query: str | bytes) -> Any:
        """The one value of a query's one row."""
        return self.connection.execute(query).fetchall()[0][0]

    def check_schema(self) -> Facts:
        return msgspec.convert(self.ask(statement("check_schema")), Facts)

    def set_lock_timeout(self, seconds: int) -> None:
        self.connection.execute(f"SET lock_timeout = '{seconds}s'")

    def create(self, dedupe: AbstractSet[str]) -> None:
        indexes = INDEXES | ({"jobs_dedupe": dedupe_index(dedupe)} if dedupe else {})
        with self.connection.transaction():
            self.connection.execute(statement("table_jobs"))
            for name, index in indexes.items():
                self.connection.execute(_create_index(name, index))
            self.create_trigger()
        self.done += ["created table jobs"] + [f"built index jobs_dedupe: added {listed(dedupe)}"] * bool(dedupe)

    def create_trigger(self) -> None:
        self.connection.execute(statement("function_jobs_notify"))
        self.connection.execute(statement("trigger_jobs_notify"))

    def drop_leftovers(self) -> None:
        """Drop what a killed migrate left: indexes half built, or on their way to or from a name."""
        ours = ("jobs_id", *INDEXES, "jobs_dedupe")
        for name, index in self.facts.indexes.items():
            if name.removesuffix("_new").removesuffix("_old") in ours and (name not in ours or not index.valid):
                self.drop_index(name)
                self.done.append(f"dropped index {name}, left by a migrate that did not end")
        self.facts = self.check_schema()

    def adopt(self) -> None:
        # The short locks first: they may fail, and the indexes may take hours.
        if self.facts.notify is not None and self.facts.notify != NOTIFY:
            self.connection.execute(statement("function_jobs_notify"))  # without a lock on the table
            self.done.append("replaced function jobs_notify")
        if checks := {name: check for name, check in CHECKS.items() if name not in self.facts.checks}:
            with self.locked("ACCESS EXCLUSIVE"):
                for name, check in checks.items():
                    self.connection.execute(f"ALTER TABLE jobs ADD CONSTRAINT {name} CHECK ({check}) NOT VALID")
            self.done.append(f"added constraint {', '.join(checks)}, for new rows")
        if self.facts.notify is None:
            with self.locked("SHARE ROW EXCLUSIVE"):
                self.create_trigger()
            self.done.append("created trigger jobs_notify")
        if not self.facts.has_key:
            self.build("jobs_id", ID)
        for name, index in INDEXES.items():
            self.build(name, index)

    def dedupe(self, declared: AbstractSet[str], prune: bool) -> None:
        had = dedupe_names(self.facts)
        names = declared if prune else declared | had
        if names:
            changes = {"added": names - had, "removed": had - names}
            told = "; ".join(f"{verb} {listed(some)}" for verb, some in changes.items() if some)
            self.build("jobs_dedupe", dedupe_index(names), told)
        elif prune and "jobs_dedupe" in self.facts.indexes:
            self.drop_index("jobs_dedupe")
            self.done.append("dropped index jobs_dedupe: no name is declared")

    def advance_sequence(self) -> None:
        if sequence := self.ask(statement("id_sequence")):
            moved = self.connection.execute(statement("advance_sequence"), {"sequence": sequence}).fetchone()
            if moved:
                lost = "jobs would have been taken for duplicates"
                self.done.append(f"moved the sequence of jobs.id past {moved[0]}: {lost}")

    def build(self, name: str, wanted: Index, changes: str = "") -> None:
        """Build the index, unless it is there; beside the one of that name, if that is another."""
        have = self.facts.indexes.get(name)
        if have and alike(have, wanted):
            return
        self.create_index(f"{name}_new" if have else name, wanted)
        if have:
            # There is no moment without the index; and renames lock no table, as a drop in here would.
            with self.connection.transaction():
                self.connection.execute(f"ALTER INDEX {name} RENAME TO {name}_old")
                self.connection.execute(f"ALTER INDEX {name}_new RENAME TO {name}")
            self.drop_index(f"{name}_old")
        self.done.append(f"{'rebuilt' if have else 'built'} index {name}" + (f": {changes}" if changes else ""))

    def create_index(self, name: str, wanted: Index) -> None:
        log.info("building index %s: it waits for transactions that began before it, nobody waits for it", name)
        try:
            self.concurrently(_create_index(name, wanted, "CONCURRENTLY"))
        except psycopg.Error as error:
            with suppress(psycopg.OperationalError):  # where the server is gone, the next migrate drops it
                left = self.check_schema().indexes.get(name)  # what has this name may be another table's
                if left and not left.valid:
                    self.drop_index(name)
            if isinstance(error, UniqueViolation):
                raise PacelineError(self.rows_in_the_way(name.removesuffix("_new"), wanted)) from None
            raise

    def drop_index(self, name: str) -> None:
        self.concurrently(f"DROP INDEX CONCURRENTLY {name}")

    def concurrently(self, ddl: str) -> None:
        """Run it without a lock_timeout: it waits, and nobody waits for it."""
        self.set_lock_timeout(0)
        self.connection.execute(ddl)
        self.set_lock_timeout(LOCK_TIMEOUT)

    def rows_in_the_way(self, name: str, index: Index) -> str:
        query = statement("rows_in_the_way").decode().format(keys=index.keys, where=index.where or "true")
        rows = self.connection.execute(query).fetchall()
        named = [f"id {id} queue {queue} name {name} (as id {first})" for id, queue, name, first, _ in rows]
        named += [f"and {count - len(rows)} more" for *_, count in rows[:1] if count > len(rows)]
        return f"rows in the way of index {name}: {', '.join(named) or 'gone by now'}; {ADVICE[name]}, then {AGAIN}"

    @contextmanager
    def locked(self, mode: str) -> Iterator[None]:
        """A transaction that locks the table first: one wait, and no second one to deadlock over."""
        try:
            with self.connection.transaction():
                self.connection.execute(f"LOCK TABLE jobs IN {mode} MODE")
                yield
        except LockNotAvailable:
            row = self.connection.execute(statement("lock_holder"), {"mode": mode}).fetchone()
            pid, name, state, seconds = row or (0, "", "", 0)
            held = f"pid {pid} ({name}, {state}) is in a transaction of {seconds} s; wait for it, or end it by SELECT"
            why = f"{held} pg_terminate_backend({pid}); then" if row else "its holder is gone by now,"
            raise PacelineError(f"no {mode} lock on jobs within {LOCK_TIMEOUT} s: {why} {AGAIN}") from None

    def upgrade(self, zone: str) -> None:
        """Give an adopted table the types, defaults and key of a new one, in one transaction that rewrites it.

        id keeps its sequence, as bigint. An identity's would be a new one: writers that were granted the old one
        or name it, and scripts that insert ids of their own, would break.
        """
        facts = self.check_schema()
        columns = facts.columns
        is_time = {name for name in COLUMNS if columns[name].type == "timestamp"}
        types = {name: types[0] for name, types in COLUMNS.items() if columns[name].type != types[0]}
        cast = dict.fromkeys(is_time, f" AT TIME ZONE {sql.Literal(zone).as_string()}")
        changes = [f"ALTER {name} TYPE {to} USING {name}{cast.get(name, f'::{to}')}" for name, to in types.items()]
        # A time's default may be its zone's own now().
        changes += [f"ALTER {name} DROP DEFAULT" for name in sorted(is_time) if columns[name].default]
        lacking = [name for name in DEFAULTS if name in is_time or not columns[name].default]
        changes += [f"ALTER {name} SET DEFAULT {DEFAULTS[name]}" for name in lacking]
        nullable = [name for name in REQUIRED if not columns[name].required]
        keyless = not any(index.primary for index in facts.indexes.values())
        if not (changes or nullable or keyless):
            return
        with self.locked("ACCESS EXCLUSIVE"):
            for name in nullable:
                if rows := self.ask(f"SELECT count(*) FROM jobs WHERE {name} IS NULL"):
                    self.done.append(f"left {name} nullable: {rows} rows are NULL")
                else:
                    changes.append(f"ALTER {name} SET NOT NULL")
            if changes:
                self.connection.execute(f"ALTER TABLE jobs {', '.join(changes)}")
            if columns["id"].type == "int4" and (sequence := self.ask(statement("id_sequence"))):
                self.connection.execute(f"ALTER SEQUENCE {sequence} AS bigint")
            if keyless:
                how = "USING INDEX jobs_id" if "jobs_id" in facts.indexes else "(id)"
                changes.append(f"ADD CONSTRAINT jobs_pkey PRIMARY KEY {how}")
                self.connection.execute(f"ALTER TABLE jobs {changes[-1]}")
        self.done += [f"upgraded table jobs: {change}" for change in changes]


def _create_index(name: str, index: Index, how: str = "") -> str:
    unique, where = "UNIQUE" * index.unique, f"WHERE {index.where}" if index.where else ""
    return f"CREATE {unique} INDEX {how} {name} ON jobs ({index.keys}) {where}"


def _one_line(error: psycopg.Error) -> str:
    return " ".join((error.diag.message_primary or str(error) or type(error).__name__).split())
