"""The lock files of deploy/: what they pin, and with which hashes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.markers import Marker

from tests.support.supervised import ROOT

NAMES = ("requirements.lock", "requirements-dev.lock", "requirements-deploy.lock")


@dataclass(frozen=True)
class Pin:
    name: str
    version: str
    marker: Marker | None
    hashes: tuple[str, ...]


def pins(file: str) -> Iterator[Pin]:
    """ValueError for whatever is no pin with hashes, an index's address above all."""
    text = re.sub(r"\\\n", " ", (ROOT / "deploy" / file).read_text())
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        found = re.fullmatch(r"([a-z0-9-]+)==(\S+)(?: ; (.*?))?((?:\s+--hash=sha256:[0-9a-f]{64})+)\s*", line)
        if not found:
            raise ValueError(f"{file}: {line[:200]}")
        name, version, marker, hashes = found.groups()
        yield Pin(name, version, Marker(marker) if marker else None, tuple(re.findall(r"[0-9a-f]{64}", hashes)))


def pinned(file: str, **environment: str) -> dict[str, str]:
    """Name to version, of those for this Python and the platform given."""
    return {pin.name: pin.version for pin in pins(file) if pin.marker is None or pin.marker.evaluate({**environment})}
