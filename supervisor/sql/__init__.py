"""The statements: one a file, each run by one function of the same name."""

from functools import cache
from pathlib import Path


@cache
def statement(name: str) -> bytes:
    """The text of sql/NAME.sql. Its parameters are psycopg's `%(name)s`."""
    return (Path(__file__).parent / f"{name}.sql").read_bytes()


def load_all() -> None:
    """Read every file now, so that forked children share the texts and never meet a newer version's."""
    for file in Path(__file__).parent.glob("*.sql"):
        statement(file.stem)
