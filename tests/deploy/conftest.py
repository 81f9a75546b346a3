"""The image, built once a run, where `make test-deploy` asks for it: it takes root, debootstrap and the registries."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.image import Image
from tests.support.supervised import ROOT

PLACE = os.environ.get("PACELINE_TEST_IMAGE", "")  # where the base is kept; unset: no image


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    if not PLACE:
        pytest.skip("`make test-deploy` builds the image")
    if os.geteuid() != 0:
        pytest.skip("to make and enter a root takes root")
    if not shutil.which("debootstrap"):
        pytest.skip("no debootstrap: apt install debootstrap")
    place = tmp_path_factory.mktemp("image")
    yield Image(ROOT / "deploy/Dockerfile", Path(PLACE).absolute(), place)
    shutil.rmtree(place)
