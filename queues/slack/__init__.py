"""The queue `slack`: posts messages. 60 jobs a minute, one message each.

https://docs.slack.dev/apis/web-api/rate-limits: about one message a second for each channel, and several hundred a
minute for a workspace; short bursts are let through.
"""

from functools import partial

from queues.slack.client import SlackClient
from queues.slack.post_message import post_message
from supervisor import DB, Worker, per_minute

throttle = per_minute(60, backoff={"err: rate limited": 60.0, "err: message_limit_exceeded": 60.0, "err: HTTP 5": 10.0})


def new_worker(db: DB, client: SlackClient | None = None) -> Worker:
    client = client or SlackClient()
    # No dedupe: the same text twice is two messages.
    return Worker(
        queue="slack",
        handlers={"slack.PostMessage": partial(post_message, client=client)},
        throttle=throttle,
        job_timeout=120,
    )
