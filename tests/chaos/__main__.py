"""`python -m tests.chaos SECONDS SEED`: a chaos run, which prints its tally and exits 1 if a promise broke.

The evidence (logs, books, the server's log) is kept where it says if something is wrong, else removed.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.chaos.run import LEFT_OUT, Run
from tests.chaos.verdict import Judgement
from tests.support import server


def chaos(directory: Path, seconds: float, seed: int) -> tuple[Judgement, Counter[str]]:
    """One run; what was found, and the faults injected by kind."""
    # A connection of a stalled relay's never says who it is, and a server that stops waits for it.
    with server.running({"authentication_timeout": "3s"}) as postgres:
        run = Run(directory, postgres, seed)
        try:
            return run.run(seconds), run.injected
        finally:
            run.close()
            shutil.copy(postgres.home / "server.log", directory)


def tally(judgement: Judgement, injected: Counter[str]) -> str:
    done = Counter({kind: count for kind, count in injected.items() if not kind.startswith(LEFT_OUT)})
    lines = [f"{done.total()} faults, {injected.total() - done.total()} left out"]
    lines += [f"{count:7}  {kind}" for kind, count in sorted(done.items())]
    lines += [f"{judgement.outcomes.total()} jobs, begun by host: {dict(sorted(judgement.hosts.items()))}"]
    lines += [f"{count:7}  {kind}" for kind, count in sorted(judgement.outcomes.items())]
    lines += [f"drained {judgement.drained:.1f} s after the last fault, {judgement.last} last"]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed", type=int)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))
    directory = Path(tempfile.mkdtemp(prefix="paceline-chaos-", dir="/tmp"))
    judgement, injected = chaos(directory, given.seconds, given.seed)
    sys.stdout.write(f"seed {given.seed}, {given.seconds:g} s\n{tally(judgement, injected)}\n")
    if judgement.wrong:
        lines = "\n  ".join(judgement.wrong[:50])
        sys.exit(f"BROKEN, {len(judgement.wrong)} times, evidence in {directory}:\n  {lines}")
    shutil.rmtree(directory)
    sys.stdout.write("nothing lost, repeated, overlapping, stranded or untrue\n")


if __name__ == "__main__":
    main()
