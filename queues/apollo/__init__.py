"""The queue `apollo`: enriches companies and people from Apollo. 150 jobs a minute, one call each.

https://docs.apollo.io/reference/rate-limits: limits are per team and endpoint. 150 a minute are inside the 1,000 of
a paid plan, and not inside the 50 of the free one (read in a copy of the vendor's page, August 2026).
"""

from functools import partial

from queues.apollo.client import ApolloClient
from queues.apollo.enqueue_refreshes import enqueue_refreshes
from queues.apollo.ingest_company import ingest_company
from queues.apollo.refresh_person import refresh_person
from supervisor import DB, Worker, per_minute

throttle = per_minute(150, backoff={"err: rate limited": 60.0, "err: HTTP 5": 10.0, "err: API_INACCESSIBLE": 60.0})


def new_worker(db: DB, client: ApolloClient | None = None) -> Worker:
    client = client or ApolloClient()
    return Worker(
        queue="apollo",
        handlers={
            "apollo.EnqueueRefreshes": partial(enqueue_refreshes, db=db),
            "apollo.IngestCompany": partial(ingest_company, db=db, client=client),
            "apollo.RefreshPerson": partial(refresh_person, db=db, client=client),
        },
        throttle=throttle,
        job_timeout=120,
        dedupe={"apollo.IngestCompany", "apollo.RefreshPerson"},
    )
