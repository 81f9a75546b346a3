"""The registry: a new queue is one line here, and a package beside this file."""

from collections.abc import Callable
from pathlib import Path

from queues import anthropic, apollo, caches, discord, github, jobs, pitchbook, slack
from queues.schedule import schedule
from supervisor import DB, Worker

registry: list[Callable[[DB], Worker]] = [
    anthropic.new_worker,
    apollo.new_worker,
    caches.new_worker,
    discord.new_worker,
    github.new_worker,
    jobs.new_worker,
    pitchbook.new_worker,
    slack.new_worker,
]

# Idempotent SQL that `paceline migrate` applies after its own.
schema = [Path(__file__).parent / "schema.sql"]

# The program of `paceline run --sandbox`: in a checkout, and in no wheel.
sandbox = Path(__file__).parents[1] / "deploy" / "sandbox" / "__main__.py"

__all__ = ["registry", "sandbox", "schedule", "schema"]
