"""A home for an embedded cluster, with a cluster in it or not, and processes that use it."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.embedded_users import User, open_directory, stopped
from tests.support.wait import eventually


@pytest.fixture
def user(home: Path) -> Iterator[Callable[..., User]]:
    users: list[User] = []

    def make(its_home: Path | str = home, **more: Any) -> User:
        users.append(User(its_home, **more))
        return users[-1]

    yield make
    for each in users:
        if each.process.stdout and not each.process.stdout.closed:
            each.killed()
    for each in users:
        eventually(partial(stopped, each.home))


@pytest.fixture
def room() -> Iterator[Path]:
    with open_directory() as path:
        yield path


@pytest.fixture
def name() -> str:
    return "home"


@pytest.fixture
def home(room: Path, name: str) -> Path:
    return room / name


@pytest.fixture(scope="session")
def made() -> Iterator[Path]:
    """A home with a cluster in it: an initdb for every test would take most of the time."""
    with open_directory() as path:
        first = User(path / "home")
        assert first.uri
        first.killed()
        eventually(lambda: stopped(path / "home"))
        yield path / "home"


@pytest.fixture
def cluster(made: Path, home: Path) -> Iterator[Path]:
    """HOME with a cluster in it that does not run. The test leaves it whole."""
    yield made.rename(home)
    home.rename(made)
