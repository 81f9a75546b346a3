"""The queue `discord`: posts messages. 60 jobs a minute, one message each.

https://docs.discord.com/developers/topics/rate-limits: limits differ for each route and channel and are told in
headers, which the client obeys; 60 a minute only spares most of its waits. Refused requests count towards a ban.
"""

from functools import partial

from queues.discord.client import DiscordClient
from queues.discord.post_message import post_message
from supervisor import DB, Worker, per_minute

throttle = per_minute(60, backoff={"err: rate limited": 60.0, "err: HTTP 4": 10.0, "err: HTTP 5": 10.0})


def new_worker(db: DB, client: DiscordClient | None = None) -> Worker:
    client = client or DiscordClient()
    # No dedupe: the same text twice is two messages.
    return Worker(
        queue="discord",
        handlers={"discord.PostMessage": partial(post_message, client=client)},
        throttle=throttle,
        job_timeout=120,
    )
