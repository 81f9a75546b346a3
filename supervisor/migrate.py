"""The table `jobs`: made, adopted, upgraded by `paceline migrate`; and checked, without DDL, by `run`.

Nothing here may stop a service that is at work, so there are two ways to change a table that exists:

- CONCURRENTLY, for indexes. It waits for every transaction that is older than itself, for hours if need be,
  but no writer waits for it meanwhile. So it has no lock_timeout.
- Under a lock on the table, for the moment that a trigger or a constraint takes. Whoever comes while we wait
  for the lock queues behind us, so that wait is short, and the error names who was in the way.
"""

import re
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
from supervisor.sql import statement

OLDEST_SERVER = 14
LOCK_TIMEOUT = 5  # seconds
TURN_TIMEOUT = 600  # seconds to wait for another migrate
AGAIN = "run `paceline migrate` again"


class Column(msgspec.Struct, frozen=True):
    type: str  # pg_type.typname
    required: bool  # NOT NULL
    default: str | None


class Index(msgspec.Struct, frozen=True):
    keys: str  # `queue, id`, as pg_get_indexdef() prints them
    where: str = ""
    unique: bool = False
    primary: bool = False
    valid: bool = True


class Facts(msgspec.Struct, frozen=True):
    """The one value of sql/check_schema.sql's one row."""

    server: int  # 180006
    schema: str | None  # the one that jobs is in, else the one that it would be made in
    kind: str | None  # pg_class.relkind of jobs: `r` is a table; None: there is no jobs
    columns: dict[str, Column]
    indexes: dict[str, Index]  # those of jobs, whoever made them
    checks: list[str]  # names of CHECK constraints
    notify: str | None  # the body of the function behind the trigger; None where the trigger does not work

    @property
    def has_key(self) -> bool:
        return any(index.valid and _alike(index, ID) for index in self.indexes.values())


# pg_type names: that of a new table first, then what an adopted one may have instead.
COLUMNS = {
    "id": ("int8", "int4"),
    **dict.fromkeys(("queue", "name", "status", "callsite"), ("text", "varchar")),
    "args": ("jsonb", "json"),
    **dict.fromkeys(("created_at", "started_at", "finished_at"), ("timestamptz", "timestamp")),
}
REQUIRED = ("queue", "name", "args", "status", "created_at")
DEFAULTS = {"args": "'{}'", "status": "'pending'", "created_at": "now()"}

# What an adopted table's rows are held to. Only while they are pending, since that is when a name is sent; and an
# old row with a longer one can still be started and ended, though an UPDATE checks a NOT VALID constraint too.
CHECKS = {
    "jobs_queue_length": "status <> 'pending' OR octet_length(queue) BETWEEN 1 AND 40",
    "jobs_name_length": "status <> 'pending' OR octet_length(name) BETWEEN 1 AND 200",
}

INDEXES = {
    "jobs_pending": Index("queue, id", "status = 'pending'"),
    "jobs_started": Index("queue", "status = 'started'"),
    "jobs_paused": Index("queue", "status = 'paused'"),
    "jobs_finished": Index("queue, finished_at", "finished_at IS NOT NULL"),
    "jobs_clock": Index("queue, name, callsite", "callsite LIKE 'clock %'", unique=True),
}
ID = Index("id", unique=True)  # built as jobs_id where no other index does the same

ADVICE = {
    "jobs_id": "give each row an id of its own",
    "jobs_clock": "delete the repeated rows",
    "jobs_dedupe": "cancel the repeated rows or let them finish",
}

NOTIFY = statement("function_jobs_notify").decode().split("$$")[1]


def _listed(names: AbstractSet[str]) -> str:
    return ", ".join(sorted(names))


def dedupe_index(names: AbstractSet[str]) -> Index:
    """One index for all deduped names. A digest of args, since a btree's rows end at 2,704 bytes and args may
    have a million; it tells 1 from 1.0, which jsonb calls equal and prints as they were written.
    """
    listed = ", ".join(sql.Literal(name).as_string() for name in sorted(names))
    where = f"status IN ('pending', 'started') AND name IN ({listed})"
    return Index("queue, name, md5(args::text)", where, unique=True)


def dedupe_names(facts: Facts) -> frozenset[str]:
    """The names that the database dedupes, read back from its index."""
    index = facts.indexes.get("jobs_dedupe")
    if index is None or not index.valid or _skeleton(index.where) != _skeleton(dedupe_index({"any"}).where):
        return frozenset()
    return frozenset(_literals(index.where)[2:])  # after the two statuses


def missing(facts: object, dedupe: AbstractSet[str]) -> list[str]:
    """What a service needs of the database and does not find, in sentences; nothing else, where empty.

    `facts` is the value that sql/check_schema.sql returns, a dict by psycopg's reading. No I/O. What another
    version may have made otherwise is let pass: hosts of two versions must run side by side.
    """
    have = msgspec.convert(facts, Facts)
    if flaws := _flaws(have) or ["there is no table jobs"] * (have.kind is None):
        return flaws
    wanted = [*INDEXES] + ["jobs_id"] * (not have.has_key) + ["jobs_dedupe"] * bool(dedupe)
    sound = {name for name, index in have.indexes.items() if index.valid}
    gaps = [f"the index {i} is {'INVALID' if i in have.indexes else 'missing'}" for i in wanted if i not in sound]
    if "jobs_dedupe" in sound and (names := dedupe - dedupe_names(have)):
        gaps.append(f"dedupe names not in the index: {_listed(names)}")
    gaps += [f"the constraint {name} is missing" for name in CHECKS if name not in have.checks]
    return gaps + ["the trigger jobs_notify is missing or disabled"] * (have.notify is None)


def refuse_gaps(facts: object, dedupe: AbstractSet[str]) -> None:
    """PacelineError with one line if a service could not work on what `facts` tell of."""
    if gaps := missing(facts, dedupe):
        raise PacelineError(f"{'; '.join(gaps)}: run `paceline migrate`")


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
        if flaws := _flaws(self.facts):
            raise PacelineError(f"{'; '.join(flaws)}: change that, or point DATABASE_URL at another database")
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
        self.done += ["created table jobs"] + [f"built index jobs_dedupe: added {_listed(dedupe)}"] * bool(dedupe)

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
            told = "; ".join(f"{verb} {_listed(some)}" for verb, some in changes.items() if some)
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
        if have and _alike(have, wanted):
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


def _flaws(facts: Facts) -> list[str]:
    """What is wrong and not for `migrate` to change."""
    if facts.server < OLDEST_SERVER * 10_000:
        return [f"Paceline needs Postgres {OLDEST_SERVER} or newer, and this is {facts.server // 10_000}"]
    if facts.schema is None:
        return ["no schema of the search_path exists"]
    if facts.kind not in ("r", None):
        return ["jobs is not an ordinary table"]
    absent = [name for name in COLUMNS if facts.kind and name not in facts.columns]
    return [f"the table jobs has no column {', '.join(absent)}"] * bool(absent) + [
        f"the column {name} of jobs is {facts.columns[name].type}, not {' or '.join(types)}"
        for name, types in COLUMNS.items()
        if name in facts.columns and facts.columns[name].type not in types
    ]


# An index is told by what it does. Postgres prints an expression back in words of its own: casts, parentheses, and
# `= ANY (ARRAY[...])` for IN.

_LITERAL = re.compile(r"(?P<escaped>\bE)?'(?P<text>(?:[^']|'')*)'")


def _literals(expression: str) -> list[str]:
    texts = [(found["text"].replace("''", "'"), found["escaped"]) for found in _LITERAL.finditer(expression)]
    return [text.replace("\\\\", "\\") if escaped else text for text, escaped in texts]


def _skeleton(expression: str) -> str:
    words = " ".join(re.sub(r"::[a-z ]+|[][(),]", " ", _LITERAL.sub(" ? ", expression)).split())
    words = words.replace("= ANY ARRAY", "=").replace(" IN ", " = ").replace(" LIKE ", " ~~ ")
    return re.sub(r"\?( \?)+", "?", words)


def _alike(one: Index, other: Index) -> bool:
    same = (one.unique, one.keys, _skeleton(one.where)) == (other.unique, other.keys, _skeleton(other.where))
    return same and sorted(_literals(one.where)) == sorted(_literals(other.where))


def _one_line(error: psycopg.Error) -> str:
    return " ".join((error.diag.message_primary or str(error) or type(error).__name__).split())
