"""Databases for tests: made from a template in some 50 ms, dropped by force when the test is over."""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import psycopg
from psycopg import sql

from supervisor.migrate import migrate
from tests.support import ledger

DEDUPED = frozenset({"test.Dedupe"})  # what tests/support/queues declares

# The table as it was before: no primary key, times without a zone (in UTC), ids that may run out.
OLDER_TABLE = """
CREATE TABLE jobs (
  id SERIAL,
  queue text NOT NULL,
  name text NOT NULL,
  args jsonb DEFAULT '{}',
  status text NOT NULL DEFAULT 'pending',
  callsite text,
  created_at timestamp NOT NULL DEFAULT now(),
  started_at timestamp,
  finished_at timestamp
)
"""


def of_cluster(cluster: str, database: str) -> str:
    """The URL of another database of the same cluster."""
    # Not urllib: it takes the slashes away from `postgresql:///`.
    return re.sub(r"^(postgres(?:ql)?://[^/?]*)(?:/[^?]*)?", rf"\g<1>/{database}", cluster)


class Databases:
    """Makes and drops databases in one cluster, and keeps the two templates, each made on first use."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._run = secrets.token_hex(3)  # so that two runs of the suite can share a server
        self._made = 0
        self._templates: list[str] = []

    @contextmanager
    def empty(self) -> Iterator[str]:
        """A database with nothing in it."""
        with self._fresh("template0") as url:
            yield url

    @contextmanager
    def today(self) -> Iterator[str]:
        """A migrated database."""
        with self._fresh(self._template_of_today) as url:
            yield url

    @contextmanager
    def older(self) -> Iterator[str]:
        """A database with the older table, adopted by migrate."""
        with self._fresh(self._template_of_older) as url:
            yield url

    def close(self) -> None:
        for name in self._templates:
            self._drop(name)

    @cached_property
    def _template_of_today(self) -> str:
        return self._template("today", before="")

    @cached_property
    def _template_of_older(self) -> str:
        return self._template("older", before=OLDER_TABLE)

    def _template(self, shape: str, *, before: str) -> str:
        name = f"paceline_test_{self._run}_{shape}"
        self._templates.append(name)
        self._create(name, "template0")
        url = of_cluster(self._cluster, name)
        _execute(url, before)
        migrate(url, dedupe=DEDUPED)
        _execute(url, ledger.TABLE)
        return name

    @contextmanager
    def _fresh(self, template: str) -> Iterator[str]:
        self._made += 1
        name = f"paceline_test_{self._run}_{self._made}"
        self._create(name, template)
        try:
            yield of_cluster(self._cluster, name)
        finally:
            self._drop(name)

    def _create(self, name: str, template: str) -> None:
        _execute(
            self._cluster,
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template)),
        )

    def _drop(self, name: str) -> None:
        _execute(self._cluster, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def _execute(url: str, statement: Any) -> None:
    # A connection each time: a test may have restarted the server meanwhile.
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)
