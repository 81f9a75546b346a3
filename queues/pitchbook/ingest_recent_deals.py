"""pitchbook.IngestRecentDeals: the deals of the last days; a company that is new with them is looked up by a job."""

from datetime import timedelta
from pathlib import Path

import msgspec

from queues.pitchbook.client import Deal, PitchBookClient
from supervisor import DB, Context, insert_many, skip

_UPSERT_DEALS = (Path(__file__).parent / "upsert_deals.sql").read_bytes()


class IngestRecentDealsArgs(msgspec.Struct):
    days: int = 7


def ingest_recent_deals(ctx: Context, args: IngestRecentDealsArgs, *, db: DB, client: PitchBookClient) -> str:
    since = (ctx.job.created_at - timedelta(days=args.days)).date()
    deals = companies = 0
    for page in client.deals_since(ctx, since):
        deals += len(page)
        companies += _write(db, page)
    return f"ok: {deals} deals, {companies} new companies" if deals else skip(f"no deals since {since}")


def _write(db: DB, page: list[Deal]) -> int:
    """One page in one transaction, with the jobs for its new companies: what was paid for stays."""
    parameters = {
        "deals": [deal.deal_id for deal in page],
        "companies": [deal.company_id for deal in page],
        "names": [deal.company_name for deal in page],
    }
    with db.connection() as connection:
        new = [id for (id,) in connection.execute(_UPSERT_DEALS, parameters)]
        jobs = [("pitchbook", "pitchbook.IngestCompany", {"pitchbook_id": id}) for id in new]
        return sum(id > 0 for id in insert_many(connection, jobs))  # 0: it is being looked up already
