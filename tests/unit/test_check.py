"""`paceline check` reads usual code, whichever way a job is enqueued in it, and finds nothing wrong with this tree.

Each way enqueues a job that nothing else does, so that without a warning each was read.
"""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.checked import check, write
from tests.support.supervised import ROOT

SHOP = '''
from supervisor import Scheduled, Worker
from functools import partial
import msgspec

class Args(msgspec.Struct, forbid_unknown_fields=True):
    id: int
    note: str = ""

def handle(ctx, args: Args, *, db) -> str:
    return "ok"

def loose(ctx, args) -> str:
    return "ok"

def new_worker(db):
    names = """NAMES""".split()
    handlers = {f"shop.{name}": partial(handle, db=db) for name in names}
    return Worker(queue="shop", handlers=handlers | {"shop.Loose": loose})

def never(minute):
    return False

registry = [new_worker]
schedule = [
    Scheduled("shop", "shop.Scheduled", never, {"id": 1}),
    *(Scheduled(queue="shop", name=f"shop.Scheduled{n}", predicate=never, args={"id": n}) for n in (2, 3)),
]
'''

CALLS = '''
import asyncio
import functools
import supervisor
import supervisor as s
import shop.names
from shop.names import JOB as RENAMED, Jobs
from shop.more.enqueuing import put
from supervisor import DB, insert, insert_async, insert_many
from supervisor import insert as enqueue
from supervisor.enqueue import insert as deep

QUEUE = "shop"
LOCAL: str = "shop.LocalConstant"
KIND = "shop"
also = supervisor.insert

def calls(db: DB, args, new, flag):
    insert(db, "shop", "shop.Positional", {"id": 1})
    insert(db=db, queue="shop", name="shop.Keyword", args={"id": 1, "note": "x"})
    insert(db, QUEUE, LOCAL, {"id": args.id})
    insert(db, shop.names.QUEUE, RENAMED, {"id": args.id, "note": args.note})
    insert(db, shop.names.QUEUE, Jobs.CLASS, {"id": args.id, **args.more})
    enqueue(db, "shop", "shop.Alias", args)
    supervisor.insert(db, "shop", "shop.Qualified", {**args})
    s.insert(db, "shop", "shop.Module", dict(id=1))
    also(db, "shop", "shop.Assigned", {"id": 1})
    deep(db, "shop", "shop.Deep", {"id": 1})
    put(db, "shop", "shop.ThroughUs", {"id": 1})
    insert(db, f"{KIND}", f"{KIND}.Formatted", {"id": 1})
    insert(db, "shop", KIND + ".Added", {"id": 1})
    insert(db, "shop", "shop.Either" if flag else "shop.Or", {"id": 1})
    insert(db, "shop", "shop.Loose")
    insert(db, "shop", "shop.Loose", {"any": "thing"})
    with db.connection() as connection, connection.transaction():
        connection.execute("UPDATE companies SET name = %s", (args.name,))
        if insert(connection, "shop", "shop.InTransaction", {"id": 1}, callsite="here"):
            functools.partial(insert, connection, "shop", "shop.Partial")({"id": 1})
    insert_many(db, [("shop", "shop.Many", {"id": 1}), ("shop", "shop.ManyMore", {"id": 2})])
    insert_many(db, [("shop", "shop.Comprehended", {"id": n}) for n in new])
    insert_many(db, jobs=(("shop", "shop.Generated", {"id": n}) for n in new))
    listed = [("shop", "shop.Listed", {"id": n}) for n in new]
    insert_many(db, listed + [*listed, ("shop", "shop.Spread", {"id": 1})])
    name = "shop.Variable"
    insert(db, "shop", name, {"id": 1})
    insert(db, "shop", args.name, {"id": 1})  # paceline: shop shop.Declared, shop shop.DeclaredToo
    insert(
        db,
        args.queue,
        args.name,
    )  # paceline: any

async def asynchronous(connection, db):
    await insert_async(connection, "shop", "shop.Async", {"id": 1})
    await asyncio.to_thread(insert, db, "shop", "shop.Thread", {"id": 1})

def others(db, client, insert_at, items):
    items.insert(0, "not a job")
    client.insert("no", "job")
    from .names import QUEUE as relative
    insert(db, relative, "shop.Relative", {"id": 1})

def sql(connection):
    """INSERT INTO jobs ... VALUES is what a docstring may say."""
    print("never INSERT INTO jobs (queue, name) VALUES by hand")
    connection.execute(
        "INSERT INTO jobs (queue, name, args)"
        " SELECT 'shop', 'shop.SqlText', jsonb_build_object('id', id) FROM companies WHERE id > %s",
        (1,),
    )
    connection.execute(f"""
        INSERT INTO jobs (queue, name, args)
        SELECT 'shop', 'shop.SqlFormatted', '{{"id": 1}}' FROM {connection.table}
    """)
    connection.execute(b"INSERT INTO jobs (queue, name, args) VALUES ('shop', 'shop.SqlRows', '{\\"id\\": 1}'),"
        b" ('shop', 'shop.SqlRows', jsonb_build_object('id', 2))")
    connection.execute("INSERT INTO jobs (queue, name) SELECT %s, %s")  # paceline: shop shop.SqlDeclared
    connection.execute("INSERT INTO jobs_archive (queue, name) VALUES ('a', 'b')")
'''

MORE = {
    "shop/__init__.py": SHOP,
    "shop/names.py": 'QUEUE = "shop"\nJOB = "shop.OtherModule"\n\n\nclass Jobs:\n    CLASS = "shop.ClassConstant"\n',
    "shop/more/__init__.py": "",
    "shop/more/enqueuing.py": "from supervisor import insert as put\n",
    "shop/calls.py": CALLS,
    "shop/due.sql": """-- What is due; `;` and 'quotes' in a comment hurt nothing.
WITH due AS (SELECT id FROM companies WHERE enriched_at < now() - make_interval(secs => %(age)s) LIMIT %(most)s)
INSERT INTO public.jobs (queue, name, args)
SELECT 'shop'::text, 'shop.File', jsonb_build_object('id', due.id, 'note', 'due') FROM due
ON CONFLICT DO NOTHING;

INSERT INTO jobs (queue, name, args)
SELECT 'shop', 'shop.Union', '{"id": 1}'::jsonb UNION ALL SELECT 'shop', 'shop.UnionToo', '{"id": 2}'::jsonb;
""",
    "shop/written.sql": """WITH written AS (UPDATE companies SET name = {name} WHERE ({where}) RETURNING id)
INSERT INTO jobs (queue, name, args) SELECT 'shop', 'shop.Template', jsonb_build_object('id', id) FROM written
""",
    "shop/trigger.sql": """CREATE OR REPLACE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- paceline: shop shop.Trigger
  INSERT INTO jobs (queue, name, args) VALUES ('shop', 'shop.Trigger', jsonb_build_object('id', NEW.id));
  RETURN NEW;
END
$$;
SELECT CASE WHEN 5 % 2 = 1 THEN 'a' END FROM companies WHERE name LIKE '%s%%' AND id %% 2 = 0
""",
    "tests/test_shop.py": 'from supervisor import insert\n\ninsert(None, "no", "such.Job")\n',
    ".venv/pyvenv.cfg": "",
    ".venv/lib.py": 'from supervisor import insert\n\ninsert(None, "no", "such.Job")\n',
    "env/pyvenv.cfg": "",
    "env/lib.py": 'from supervisor import insert\n\ninsert(None, "no", "such.Job")\n',
}


def project(root: Path) -> None:
    names = sorted(set(re.findall(r"(?:shop|\})\.([A-Z]\w+)", "".join(MORE.values()))) - {"Loose", "CLASS"})
    names += ["Added", "Scheduled2", "Scheduled3"]
    write(root, MORE | {"shop/__init__.py": SHOP.replace("NAMES", " ".join(names))})


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    root = tmp_path_factory.mktemp("usual")
    project(root)
    return check(root)


def test_usual_code_is_read_whole(checked: subprocess.CompletedProcess[str]) -> None:
    assert (checked.stdout, checked.stderr, checked.returncode) == ("", "", 0)


def test_nothing_is_wrong_with_this_tree() -> None:
    """It is part of `make check`; no database is made or asked."""
    done = check(ROOT, registry="queues")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_the_engines_own_sql_is_read() -> None:
    """Left out of the tree, since it is what insert() and the clock are made of; but Postgres's parser takes it all."""
    done = check(ROOT, "--root", "supervisor/sql", registry="queues")
    found = [line for line in done.stdout.splitlines() if "warning: nothing enqueues" not in line]
    assert not [line for line in found if "not read as SQL" in line], found
    assert {line.split(":")[0] for line in found} == {
        f"supervisor/sql/{n}.sql" for n in ("insert", "insert_many", "pause", "retry", "tick")
    }


def test_another_root_is_one_that_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", {"calls.py": 'from supervisor import insert\ninsert(None, "shop", "shop.None")\n'})
    project(tmp_path / "here")
    done = check(tmp_path / "here", "--root", str(tmp_path / "elsewhere"))
    assert f"{tmp_path}/elsewhere/calls.py:2: queue shop has no job 'shop.None'" in done.stdout
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--registry", "nowhere"], "paceline: no module 'nowhere': set PACELINE_REGISTRY to a module on PYTHONPATH"),
        (["--root", "nowhere"], "paceline: --root nowhere: no such directory"),
    ],
)
def test_usage_errors_are_one_line(flags: list[str], line: str, tmp_path: Path) -> None:
    project(tmp_path)
    done = check(tmp_path, *flags)
    assert (done.stdout, done.stderr.strip(), done.returncode) == ("", line, 2)


def test_a_missing_parser_is_one_line_that_says_what_to_install(tmp_path: Path) -> None:
    project(tmp_path)
    write(tmp_path, {"postgast.py": "raise ModuleNotFoundError(name='postgast')\n"})  # found before the real one
    done = check(tmp_path)
    assert (done.stdout, done.returncode) == ("", 2)
    assert done.stderr.strip() == "paceline: check reads SQL with postgast: pip install 'paceline[check]'"


def test_warnings_alone_do_not_fail(tmp_path: Path) -> None:
    write(tmp_path, {"shop/__init__.py": SHOP.replace("NAMES", "Scheduled Scheduled2 Scheduled3")})
    done = check(tmp_path)
    assert done.stdout == "shop/__init__.py:13: warning: nothing enqueues shop.Loose\n"
    assert done.returncode == 0
