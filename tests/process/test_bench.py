"""The benchmarks run from end to end: with next to nothing to measure, and no figure judged."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.supervised import ROOT


@pytest.mark.slow
def test_a_benchmark_measures_something_and_says_what_it_compares_with(cluster: str, tmp_path: Path) -> None:
    """Issue E: one table, and the same as JSON. One scenario of each family."""
    scenarios = ["drain-1", "wake", "memory", "boot"]
    file = tmp_path / "bench.json"
    command = [sys.executable, "-m", "tests.bench", "--tiny", "--only", ",".join(scenarios), "--json", str(file)]
    env = os.environ | {"DATABASE_URL": cluster}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(file.read_text())
    assert list(dict.fromkeys(row["scenario"] for row in report["rows"])) == scenarios
    assert {"fsync", "synchronous_commit", "server_version"} <= set(report["facts"])
    for row in report["rows"]:
        assert row["reached"] in ((True, False) if row["reach"] else (None,)), row
        assert row["measure"] in done.stdout
