"""When a child has done enough: a handler that leaks takes only its own process's memory, and that for a while."""

import mmap
from pathlib import Path


class Wear:
    """Counts the jobs of this process, and what its memory has grown by since it was ready. `out`: replace it."""

    def __init__(self, max_jobs: int | None, max_rss: int | None) -> None:
        self._jobs_left, self._max_rss = max_jobs, max_rss
        self._at_first = 0
        self.out = False

    def ready(self) -> None:
        """The first job is about to come: what this process needs by itself is there."""
        if self._max_rss and not self._at_first:
            self._at_first = resident()

    def job_done(self) -> None:
        if self._jobs_left:
            self._jobs_left -= 1
            self.out = self.out or not self._jobs_left
        if self._max_rss:
            self.out = self.out or resident() - self._at_first > self._max_rss


def resident() -> int:
    """This process's resident memory in bytes (proc(5), statm)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
