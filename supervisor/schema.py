"""What the table `jobs` must be, and what a given one lacks of it. No I/O.

`run` refuses to work on a table that lacks something; `migrate` makes it so.
"""

import re
from collections.abc import Set as AbstractSet

import msgspec
from psycopg import sql

from supervisor.errors import PacelineError

OLDEST_SERVER = 14


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
        return any(index.valid and alike(index, ID) for index in self.indexes.values())


# pg_type names: that of a new table first, then what an adopted one may have instead.
COLUMNS = {
    "id": ("int8", "int4"),
    **dict.fromkeys(("queue", "name", "status", "callsite"), ("text", "varchar")),
    "args": ("jsonb", "json"),
    **dict.fromkeys(("created_at", "started_at", "finished_at"), ("timestamptz", "timestamp")),
}

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


def listed(names: AbstractSet[str]) -> str:
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
    if found := flaws(have) or ["there is no table jobs"] * (have.kind is None):
        return found
    wanted = [*INDEXES] + ["jobs_id"] * (not have.has_key) + ["jobs_dedupe"] * bool(dedupe)
    sound = {name for name, index in have.indexes.items() if index.valid}
    gaps = [f"the index {i} is {'INVALID' if i in have.indexes else 'missing'}" for i in wanted if i not in sound]
    if "jobs_dedupe" in sound and (names := dedupe - dedupe_names(have)):
        gaps.append(f"dedupe names not in the index: {listed(names)}")
    gaps += [f"the constraint {name} is missing" for name in CHECKS if name not in have.checks]
    return gaps + ["the trigger jobs_notify is missing or disabled"] * (have.notify is None)


def refuse_gaps(facts: object, dedupe: AbstractSet[str]) -> None:
    """PacelineError with one line if a service could not work on what `facts` tell of."""
    if gaps := missing(facts, dedupe):
        raise PacelineError(f"{'; '.join(gaps)}: run `paceline migrate`")


def flaws(facts: Facts) -> list[str]:
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


def alike(one: Index, other: Index) -> bool:
    same = (one.unique, one.keys, _skeleton(one.where)) == (other.unique, other.keys, _skeleton(other.where))
    return same and sorted(_literals(one.where)) == sorted(_literals(other.where))
