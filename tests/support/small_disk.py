"""A small disk of a test's own, a tmpfs: to be filled to the last byte, and freed again."""

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.server import account

_BLOCK = bytes(4096)


class SmallDisk:
    """Mounted at `path`, and the server's account's own."""

    def __init__(self, path: Path, megabytes: int) -> None:
        self.path, self._megabytes = path, megabytes
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """To the last block."""
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while file.tell() <= self._megabytes << 20:  # or it is no small disk
                    file.write(_BLOCK)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Mounted until the end; skips the test where this user may not mount."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "tmpfs", str(path)]
    done = subprocess.run(mount, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"a small disk needs root, and the right to mount: {done.stderr.strip()}")
    try:
        account().own(path)
        yield SmallDisk(path, megabytes)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
