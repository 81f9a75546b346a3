"""Small projects of a test's own, and `paceline check` run on them as a command."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.supervised import environment


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def check(root: Path, *flags: str, registry: str = "shop") -> subprocess.CompletedProcess[str]:
    """Run it in `root`, which is on the path that modules are found on."""
    return subprocess.run(
        [sys.executable, "-m", "supervisor", "check", *flags],
        cwd=root,
        env=environment(None, registry, {"PYTHONPATH": str(root)}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
