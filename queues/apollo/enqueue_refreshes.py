"""apollo.EnqueueRefreshes: the rota by which companies and people are looked up anew every month, a few each day."""

from pathlib import Path

import msgspec

from supervisor import DB, Context, skip

_HERE = Path(__file__).parent
_ENQUEUE_COMPANIES = (_HERE / "enqueue_companies.sql").read_bytes()
_ENQUEUE_PEOPLE = (_HERE / "enqueue_people.sql").read_bytes()


class EnqueueRefreshesArgs(msgspec.Struct):
    most: int = 500  # of each: they cost credits


def enqueue_refreshes(ctx: Context, args: EnqueueRefreshesArgs, *, db: DB) -> str:
    with db.connection() as connection:
        connection.execute("SET LOCAL TimeZone TO 'UTC'")  # an older table's times have no zone and are in UTC
        companies = connection.execute(_ENQUEUE_COMPANIES, {"most": args.most}).rowcount
        people = connection.execute(_ENQUEUE_PEOPLE, {"most": args.most}).rowcount
    return f"ok: {companies} companies, {people} people" if companies or people else skip("nothing is due")
