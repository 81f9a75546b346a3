"""The queue `github`: organisations and their repositories. 60 jobs a minute.

https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api: 5,000 requests an hour with a token.
60 jobs a minute leave 1,400 of them for the further pages of large organisations; answers "not modified" are free.
Without a token there are 60 an hour, too few to be of use: then the queue says `err: set GITHUB_TOKEN` and pauses.
"""

from functools import partial

from queues.github.client import GitHubClient
from queues.github.refresh_org import refresh_org
from queues.github.refresh_repo import refresh_repo
from supervisor import DB, Worker, per_minute

throttle = per_minute(60, backoff={"err: rate limited": 60.0, "err: HTTP 5": 10.0})


def new_worker(db: DB, client: GitHubClient | None = None) -> Worker:
    client = client or GitHubClient()
    return Worker(
        queue="github",
        handlers={
            "github.RefreshOrg": partial(refresh_org, db=db, client=client),
            "github.RefreshRepo": partial(refresh_repo, db=db, client=client),
        },
        throttle=throttle,
        dedupe={"github.RefreshOrg", "github.RefreshRepo"},
    )
