"""`paceline run` with smaller limits, for what would take minutes: a program for `run_supervisor(python=...)`."""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from supervisor import log, report
from supervisor.config import Limits, Settings, load_registry
from supervisor.parent import supervisor


def program(directory: Path, **limits: float) -> str:
    """The path of a program that is called as an interpreter is, `-m supervisor run QUEUE...`, and has these limits."""
    file = directory / "limited"
    file.write_text(f"#!{sys.executable}\nfrom tests.support.run_limited import main\nmain({limits})\n")
    file.chmod(0o755)
    return str(file)


def main(limits: Mapping[str, float]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("queues", nargs="*")
    parser.add_argument("--drain-timeout", type=float)
    parser.add_argument("--web", type=int)
    given = parser.parse_args(sys.argv[4:])
    url, registry = os.environ["DATABASE_URL"], os.environ["PACELINE_REGISTRY"]
    registry_loaded = load_registry(registry, url).only(given.queues)
    if os.environ.get(supervisor.TRY_ONLY):  # a reload asks whether this would start
        sys.exit(0)
    web = ("127.0.0.1", given.web) if given.web else None
    settings = Settings(url=url, registry=registry, drain_timeout=given.drain_timeout, limits=Limits(**limits), web=web)  # type: ignore[arg-type]
    log.start("text")
    report.start(os.environ.get("SENTRY_DSN"))
    sys.exit(supervisor.run(settings, registry_loaded))
