"""The statements: one a file, each run by one function of the same name."""

import re
from functools import cache
from pathlib import Path


@cache
def statement(name: str) -> bytes:
    """The text of sql/NAME.sql. Its parameters are psycopg's `%(name)s`."""
    return (Path(__file__).parent / f"{name}.sql").read_bytes()


@cache
def numbered(name: str) -> tuple[bytes, tuple[str, ...]]:
    """The same for libpq: its parameters are `$1`, `$2`, and their names in that order."""
    names = list(dict.fromkeys(re.findall(rb"%\((\w+)\)s", statement(name))))
    text = re.sub(rb"%\((\w+)\)s", lambda found: b"$%d" % (names.index(found[1]) + 1), statement(name))
    return text, tuple(each.decode() for each in names)


def load_all() -> None:
    """Read every file now, so that forked children share the texts and never meet a newer version's.

    Numbered, too: a child that does it takes 0.3 MB of copied pages for `re`.
    """
    for file in Path(__file__).parent.glob("*.sql"):
        numbered(file.stem)
