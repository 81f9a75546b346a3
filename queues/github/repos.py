"""The table `repos`, as both jobs write it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from queues.github.client import Repository

_UPSERT_REPOS = (Path(__file__).parent / "upsert_repos.sql").read_bytes()


def upsert(connection: psycopg.Connection[Any], repositories: Sequence[Repository], *, by_themselves: bool) -> None:
    """Write what GitHub says of them: each read by itself, or all in a list, which says less."""
    parameters = {"repositories": msgspec.json.encode(repositories).decode(), "by_themselves": by_themselves}
    connection.execute(_UPSERT_REPOS, parameters)
