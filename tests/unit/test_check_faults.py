"""`paceline check` names each planted fault, by its line, and nothing else.

A fault is planted where a comment has its name in capitals, in a project whose every other line is in order.
"""

import re
import subprocess

import pytest

from tests.support.checked import check, write

FILES = {
    "shop/__init__.py": '''"""The registry."""
import msgspec
from supervisor import Context, Scheduled, Worker
from shop.more import names

class Args(msgspec.Struct):
    company: int = msgspec.field(name="companyId")
    note: str = ""

class Person(msgspec.Struct, tag="person"):
    id: int

def company(ctx: Context, args: Args) -> str:
    return "ok"

def person(ctx: Context, args: Person) -> str:
    return "ok"

def idle(ctx: Context, args: dict) -> str:  # NOTHING-ENQUEUES
    return "ok"

def strange(ctx: Context, args: "Gone") -> str:  # STRANGE-ARGS
    return "ok"

def shop(db) -> Worker:  # TWO-WORKERS
    return Worker(queue="shop", handlers={"shop.Company": company, "shop.Person": person, "shop.Idle": idle})

def shop_again(db) -> Worker:  # TWO-WORKERS-AGAIN
    return Worker(queue="shop", handlers={"shop.Company": company, "shop.Person": person, "shop.Idle": idle})

def desk(db) -> Worker:
    return Worker(queue="desk", handlers={"desk.Write": idle, "desk.Strange": strange})

def never(minute):
    return False

registry = [shop, shop_again, desk]
schedule = [
    Scheduled("desk", "desk.Write", never),
    Scheduled("desk", "desk.Strange", never),
    Scheduled("shop", "shop.Comapny", never, {"companyId": 1}),  # SCHEDULED-JOB
    Scheduled(  # SCHEDULED-ARGS
        queue="shop", name="shop.Person", predicate=never, args={"id": "one"}
    ),
    Scheduled(names.NO_QUEUE, "shop.Person", never, {"id": 1}),  # SCHEDULED-QUEUE
]
''',
    "shop/more/__init__.py": "",
    "shop/more/names.py": '''"""Names."""
NO_QUEUE = "nowhere"
NO_JOB = "shop.Nothing"
ROUND = "shop.Company"
ROUND_AGAIN = ROUND
ROUND = ROUND_AGAIN
''',
    "shop/more/calls.py": '''"""Calls."""
import asyncio
import supervisor as s
from functools import partial
from supervisor import insert, insert_async, insert_many
from supervisor import insert as enqueue
from shop.more import names
from .names import NO_JOB

QUEUE = "shpo"

def calls(db, args, items, *more):
    insert(db, "shop", "shop.Company", {"companyId": 1})
    insert(db, "shpo", "shop.Company", {"companyId": 1})  # UNKNOWN-QUEUE
    insert(db, "shop", "shop.Compny", {"companyId": 1})  # UNKNOWN-JOB
    insert(db, "desk", "shop.Company", {"companyId": 1})  # ANOTHER-QUEUES-JOB
    enqueue(db, args={}, name="shop.Nope", queue="shop")  # KEYWORDS-OF-AN-ALIAS
    s.insert(db, "shop", names.NO_JOB)  # CONSTANT-OF-ANOTHER-MODULE
    insert(db, "shop", NO_JOB)  # RELATIVE-IMPORT
    insert(db, QUEUE, "shop.Company")  # CONSTANT-OF-THE-MODULE
    insert(db, "shop", args.name)  # COMPUTED-NAME
    insert(db, f"{args.queue}", "shop.Company")  # COMPUTED-QUEUE
    insert(db, "shop", names.ROUND)  # CIRCLE
    insert(db, *more)  # STARS
    insert(db, "shop", args.name)  # paceline: shop shop.Undeclared # DECLARED-BUT-UNKNOWN
    insert(db, "shop", args.name)  # paceline: shop.Company # DECLARED-WITHOUT-A-QUEUE
    insert(db, "shop", "shop.Company", {"companyid": args.id, "companyId": 1})  # NO-SUCH-KEY
    insert(db, "shop", "shop.Company", {"note": args.note})  # REQUIRED-KEY
    insert(db, "shop", "shop.Company")  # NO-ARGS
    insert(db, "shop", "shop.Company", {"companyId": "1"})  # WRONG-TYPE
    insert(db, "shop", "shop.Person", {"id": 1, "type": "person", "note": args.note})  # KEY-BESIDE-THE-TAG
    insert_many(db, [("shop", "shop.Company", {"companyId": 1}), ("desk", "desk.Wrte", None)])  # ONE-OF-MANY
    insert_many(db, [("shop", item.name, {}) for item in items])  # COMPUTED-OF-MANY
    jobs = [("shop", "shop.Company", {"companyId": 1})]
    jobs.append(("shop", args.name, {}))
    insert_many(db, jobs)  # APPENDED
    insert_many(db, items)  # COMPUTED-LIST
    for kind in items:
        insert(db, "shop", kind, {})  # LOOP
    name = "shop.Gone" if items else "shop.GoneToo"
    partial(insert, db, "shop", name)  # PASSED-ON
    put = {"put": insert}  # KEPT
    return put

async def asynchronous(connection, db):
    await insert_async(connection, "shop", "shop.Missing", {})  # ASYNC
    await asyncio.to_thread(insert, db, "dsk", "desk.Write")  # TO-A-THREAD

def sql(connection, queue):
    connection.execute("INSERT INTO jobs (queue, name) VALUES (%s, %s)", ("shop", "a"))  # SINGLE-ROW
    connection.execute("INSERT INTO jobs (queue, name) SELECT 'shop', 'shop.Sql' FROM companies")  # SQL-TEXT
    connection.execute(f"INSERT INTO jobs (queue, name) SELECT '{queue}', 'shop.Company' FROM c")  # SQL-F-STRING
    connection.execute(
        """
        INSERT INTO jobs (queue, name) -- SELECTED-COLUMN
        SELECT queue, 'shop.Company' FROM companies
        """
    )
    connection.execute("INSERT INTO jobs (queue name) SELECT 1")  # SQL-TEXT-IS-NONE
    with connection.cursor().copy("COPY jobs (queue, name) FROM STDIN"):  # COPY
        pass
''',
    "shop/sql/due.sql": """-- Bytes are not letters: éééééééééééééééééééééééééééééééééééééééééééééééééééééééé
INSERT INTO jobs (queue, name, args)
SELECT 'shop', 'shop.Company', jsonb_build_object('companyId', id) FROM companies;
INSERT INTO jobs (queue, name, args) -- SELECTED-JOB
SELECT 'shop', 'shop.Compani', jsonb_build_object('companyId', id) FROM companies;
INSERT INTO jobs (queue, name, args) -- SELECTED-KEY
SELECT 'shop', 'shop.Company', jsonb_build_object('companyId', id, 'nota', '') FROM companies;
INSERT INTO jobs (queue, name, args) -- SELECTED-LITERAL
SELECT 'shop', 'shop.Company', '{"note": "é"}'::jsonb FROM companies;
INSERT INTO jobs (queue, name) -- SELECTED-QUEUE
SELECT 'é' || queue, 'shop.Company' FROM companies;
INSERT INTO jobs (queue, name, args) VALUES -- SINGLE-ROW-IN-A-FILE
  ('shop', 'shop.Company', '{"companyId": 1}');
INSERT INTO jobs SELECT 1, 'shop', 'shop.Company'; -- NO-COLUMNS
""",
    "shop/sql/inner.sql": """WITH started AS (
  INSERT INTO jobs (queue, name) SELECT 'desk', 'desk.Wrote' FROM companies RETURNING id -- INSIDE-A-WITH
)
SELECT count(*) FROM started
""",
    "shop/sql/trigger.sql": """CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO jobs (queue, name) SELECT NEW.queue, 'shop.Company'; -- BODY
  RETURN NEW;
END
$$
""",
    "shop/sql/broken.sql": "-- Two lines, and then\nSELECT 1 FROM; -- BROKEN-SQL\nSELECT 2\n",
    "shop/broken.py": "def f(:  # BROKEN-PYTHON\n    pass\n",
}

HOW = "write it as a literal or a constant, or declare it on the line: # paceline: QUEUE NAME"
FAULTS = {
    "NOTHING-ENQUEUES": "warning: nothing enqueues shop.Idle",
    "STRANGE-ARGS": "handler strange: the type of args must stand at its module's top: name 'Gone' is not defined",
    "TWO-WORKERS": "two workers for queue 'shop'",
    "TWO-WORKERS-AGAIN": "two workers for queue 'shop'",
    "SCHEDULED-JOB": "schedule: queue shop has no job 'shop.Comapny'; did you mean 'shop.Company'?",
    "SCHEDULED-ARGS": "schedule: args of shop.Person: Expected `int`, got `str` - at `$.id`",
    "SCHEDULED-QUEUE": "schedule: no worker for queue 'nowhere'; there are: desk, shop",
    "UNKNOWN-QUEUE": "no worker for queue 'shpo'; did you mean 'shop'?",
    "UNKNOWN-JOB": "queue shop has no job 'shop.Compny'; did you mean 'shop.Company'?",
    "ANOTHER-QUEUES-JOB": "queue desk has no job 'shop.Company'; queue shop has",
    "KEYWORDS-OF-AN-ALIAS": "queue shop has no job 'shop.Nope'",
    "CONSTANT-OF-ANOTHER-MODULE": "queue shop has no job 'shop.Nothing'",
    "RELATIVE-IMPORT": "queue shop has no job 'shop.Nothing'",
    "CONSTANT-OF-THE-MODULE": "no worker for queue 'shpo'",
    "COMPUTED-NAME": f"cannot read `args.name`: {HOW}",
    "COMPUTED-QUEUE": "cannot read `args.queue`",
    "CIRCLE": "cannot read `ROUND_AGAIN`",
    "STARS": "cannot read the argument 'queue'",
    "DECLARED-WITHOUT-A-QUEUE": "`paceline: shop.Company` declares nothing: QUEUE NAME, or several with commas, or any",
    "DECLARED-BUT-UNKNOWN": "queue shop has no job 'shop.Undeclared'; there are: shop.Company, shop.Idle, shop.Person",
    "NO-SUCH-KEY": "args of shop.Company: no field 'companyid'; did you mean 'companyId'?",
    "REQUIRED-KEY": "args of shop.Company: the required field 'companyId' is left out",
    "NO-ARGS": "args of shop.Company: the required field 'companyId' is left out",
    "WRONG-TYPE": "args of shop.Company: Expected `int`, got `str` - at `$.companyId`",
    "KEY-BESIDE-THE-TAG": "args of shop.Person: no field 'note'",
    "ONE-OF-MANY": "queue desk has no job 'desk.Wrte'; did you mean 'desk.Write'?",
    "COMPUTED-OF-MANY": "cannot read `item.name`",
    "APPENDED": "cannot read `jobs`",
    "COMPUTED-LIST": "cannot read `items`",
    "LOOP": "cannot read `kind`",
    "PASSED-ON": "queue shop has no job 'shop.GoneToo'",
    "KEPT": "cannot read what this does with insert",
    "ASYNC": "queue shop has no job 'shop.Missing'",
    "TO-A-THREAD": "no worker for queue 'dsk'; did you mean 'desk'?",
    "SINGLE-ROW": "a single row goes in by insert(), which checks its args and notes its callsite",
    "SQL-TEXT": "queue shop has no job 'shop.Sql'",
    "SQL-F-STRING": "cannot read the queue and name of what is selected",
    "SELECTED-COLUMN": "cannot read the queue and name of what is selected",
    "SQL-TEXT-IS-NONE": 'not read as SQL: syntax error at or near "name"',
    "COPY": "cannot read what COPY writes",
    "SELECTED-JOB": "queue shop has no job 'shop.Compani'; did you mean 'shop.Company'?",
    "SELECTED-KEY": "args of shop.Company: no field 'nota'; did you mean 'note'?",
    "SELECTED-LITERAL": "args of shop.Company: the required field 'companyId' is left out",
    "SELECTED-QUEUE": "cannot read the queue and name of what is selected",
    "SINGLE-ROW-IN-A-FILE": "a single row goes in by insert()",
    "NO-COLUMNS": "an INSERT INTO jobs names its columns, queue and name among them",
    "INSIDE-A-WITH": "queue desk has no job 'desk.Wrote'; did you mean 'desk.Write'?",
    "BODY": "cannot read the body of a function",
    "BROKEN-SQL": "not read as SQL: syntax error",
    "BROKEN-PYTHON": "not read: ",
}


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    root = tmp_path_factory.mktemp("faults")
    write(root, FILES)
    return check(root)


def planted() -> dict[str, str]:
    """`path:line` by the name of the fault."""
    found = {}
    for file, text in FILES.items():
        for number, line in enumerate(text.splitlines(), 1):
            if name := re.search(r"(?:#|--) ([A-Z-]+)$", line):
                found[name[1]] = f"{file}:{number}"
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_is_named(fault: str, checked: subprocess.CompletedProcess[str]) -> None:
    expected = f"{planted()[fault]}: {FAULTS[fault]}"
    assert any(line.startswith(expected) for line in checked.stdout.splitlines()), checked.stdout


def test_nothing_else_is_named_and_the_lines_are_in_order(checked: subprocess.CompletedProcess[str]) -> None:
    places = [tuple(line.split(":")[:2]) for line in checked.stdout.splitlines()]
    assert {":".join(place) for place in places} == {planted()[fault] for fault in FAULTS}
    assert places == sorted(places, key=lambda place: (place[0], int(place[1])))
    assert (checked.stderr, checked.returncode) == ("", 1)
