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

__all__ = ["registry", "schedule", "schema"]
