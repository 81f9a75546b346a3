"""The queue `pitchbook`: finds recent deals, and the companies behind them. Every request costs credits.

No page that was found says what PitchBook's rate limits are, nor how it answers past them: 30 jobs a minute is a guess.
"""

from functools import partial

from queues.pitchbook.client import PitchBookClient
from queues.pitchbook.ingest_company import ingest_company
from queues.pitchbook.ingest_recent_deals import ingest_recent_deals
from supervisor import DB, Worker, per_minute

throttle = per_minute(30, backoff={"err: rate limited": 60.0, "err: HTTP 5": 30.0, "err: HTTP 402": 600.0})


def new_worker(db: DB, client: PitchBookClient | None = None) -> Worker:
    client = client or PitchBookClient()
    return Worker(
        queue="pitchbook",
        handlers={
            "pitchbook.IngestRecentDeals": partial(ingest_recent_deals, db=db, client=client),
            "pitchbook.IngestCompany": partial(ingest_company, db=db, client=client),
        },
        throttle=throttle,
        dedupe={"pitchbook.IngestRecentDeals", "pitchbook.IngestCompany"},
    )
