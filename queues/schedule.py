"""What the clock enqueues: (queue, name, predicate over the UTC minute)."""

from supervisor import Scheduled

schedule = [
    Scheduled("caches", "caches.Age", lambda minute: minute.minute % 15 == 0),
    Scheduled("jobs", "jobs.CleanUpQueues", lambda minute: (minute.hour, minute.minute) == (3, 10)),
]
