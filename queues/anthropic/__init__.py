"""The queue `anthropic`: summaries of companies. Each is paid for, so none is made twice within WINDOW_DAYS.

The limits differ by tier and model (https://platform.claude.com/docs/en/api/rate-limits); 30 jobs a minute are a guess
that is inside those of the lowest tier as it is told of elsewhere (50 requests a minute, not verified).

A summary is posted where a channel is configured: SLACK_CHANNEL, DISCORD_CHANNEL. Without one no job is enqueued:
who has no Slack should find no errs, nor a heap of posts that wait to be sent on the day that there is one.
"""

import os
from functools import partial

from queues.anthropic.client import AnthropicClient
from queues.anthropic.summarize_company import Channels, summarize_company
from queues.jobs import retention_days
from supervisor import DB, Worker, per_minute

WINDOW_DAYS = 7

throttle = per_minute(30, backoff={"err: rate limited": 60.0, "err: HTTP 5": 30.0})


def new_worker(db: DB, client: AnthropicClient | None = None) -> Worker:
    """Raises ValueError where finished jobs are deleted before the window, by which paid work is found, is over."""
    if retention_days() <= WINDOW_DAYS:
        raise ValueError(
            f"JOBS_RETENTION_DAYS={retention_days():g}: must be more than {WINDOW_DAYS}, the days for which "
            "anthropic.SummarizeCompany looks back in jobs, so as not to pay twice"
        )
    channels = Channels(slack=_has("SLACK_CHANNEL"), discord=_has("DISCORD_CHANNEL"))
    run = partial(
        summarize_company, db=db, client=client or AnthropicClient(), channels=channels, window_days=WINDOW_DAYS
    )
    return Worker(
        queue="anthropic",
        handlers={"anthropic.SummarizeCompany": run},
        throttle=throttle,
        job_timeout=180,
        dedupe={"anthropic.SummarizeCompany"},
    )


def _has(variable: str) -> bool:
    """Whether the queue that reads it would find a channel there."""
    return bool(os.environ.get(variable, "").strip())
