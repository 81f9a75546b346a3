"""The program behind `paceline run --sandbox`, which talks to it: see supervisor/sandbox.py.

It serves the stand-ins, loads the fifty companies and enqueues the first jobs. Its arguments are the vendors that are
called themselves.
"""

import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # it is run by its path

import psycopg
from setproctitle import setproctitle

from deploy.sandbox import VENDORS
from deploy.sandbox.companies import COMPANIES
from deploy.sandbox.server import Sandbox
from supervisor import insert

PACE = 5.0  # times faster than the vendors would like: a minute then shows some of everything
ENRICHED_AT_ONCE = 10  # companies; the others come by way of the deals


def main() -> int:
    setproctitle("paceline-sandbox stand-ins")
    for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signo, signal.SIG_IGN)  # it ends after those that call it
    live, known = sys.argv[1:], [vendor.name for vendor in VENDORS]
    if unknown := [name for name in live if name not in known]:
        say({"error": f"no vendor {unknown[0]!r} to let live; there are: {', '.join(known)}"})
        return 2
    with Sandbox([vendor() for vendor in VENDORS if vendor.name not in live]) as sandbox:
        environment = sandbox.environment()
        say(
            {
                "environment": environment,
                "pace": dict.fromkeys(sandbox.vendors, PACE),
                "told": told(environment, sandbox, live),
            }
        )
        if url := sys.stdin.readline().strip():
            fill(url)
            say({})
            sys.stdin.read()  # until nobody is left to call
    return 0


def told(environment: dict[str, str], sandbox: Sandbox, live: list[str]) -> list[str]:
    lines = [f"{sandbox.url} stands in for {', '.join(sandbox.vendors)}"]
    lines += [f"{name} is called itself" for name in live]
    tokens = [name for name in environment if name.endswith("_TOKEN")]
    if ignored := [name for name in tokens if os.environ.get(name) not in (None, "", environment[name])]:
        lines.append(f"ignores {', '.join(sorted(ignored))} of the environment")
    return lines


def fill(url: str) -> None:
    with psycopg.connect(url, application_name="paceline:sandbox") as connection:
        connection.cursor().executemany(
            "INSERT INTO companies (name, domain, github_org) VALUES (%s, %s, %s) ON CONFLICT (domain) DO NOTHING",
            [(company.name, company.domain, company.github) for company in COMPANIES],
        )
        insert(connection, "caches", "caches.Age")
        insert(connection, "jobs", "jobs.CleanUpQueues")
        insert(connection, "pitchbook", "pitchbook.IngestRecentDeals")
        for company in COMPANIES[:ENRICHED_AT_ONCE]:
            insert(connection, "apollo", "apollo.IngestCompany", {"domain": company.domain})
        insert(connection, "slack", "slack.PostMessage", {"text": "The sandbox is open."})
        insert(connection, "discord", "discord.PostMessage", {"text": "The sandbox is open."})


def say(what: object) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
