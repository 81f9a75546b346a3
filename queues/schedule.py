"""What the clock enqueues: (queue, name, predicate over the UTC minute)."""

from collections.abc import Callable
from datetime import datetime

from supervisor import Scheduled


def daily(hour: int, minute: int) -> Callable[[datetime], bool]:
    return lambda now: (now.hour, now.minute) == (hour, minute)


schedule = [
    Scheduled("caches", "caches.Age", lambda now: now.minute % 15 == 0),
    Scheduled("jobs", "jobs.CleanUpQueues", daily(3, 10)),
    Scheduled("jobs", "jobs.PostDigest", daily(7, 0)),
    Scheduled("pitchbook", "pitchbook.IngestRecentDeals", lambda now: now.hour % 6 == 1 and now.minute == 30),
    Scheduled("apollo", "apollo.EnqueueRefreshes", daily(4, 20)),
]
