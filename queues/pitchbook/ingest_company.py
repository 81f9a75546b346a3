"""pitchbook.IngestCompany: a company's website, and so the domain by which Apollo is asked."""

from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from queues.pitchbook.client import PitchBookClient
from supervisor import DB, Context, fail, insert

_UPSERT_COMPANY = (Path(__file__).parent / "upsert_company.sql").read_bytes()


class IngestCompanyArgs(msgspec.Struct):
    pitchbook_id: str


def ingest_company(ctx: Context, args: IngestCompanyArgs, *, db: DB, client: PitchBookClient) -> str:
    found = client.company(ctx, args.pitchbook_id)
    if found is None:
        return fail("no such company")
    domain = domain_of(found.website or "")
    if domain is None:
        return fail("no website")
    parameters = {
        "domain": domain,
        "name": (found.company_name and found.company_name.formal_name) or domain,
        "pitchbook_id": args.pitchbook_id,
        "website": found.website,
        "description": found.description,
        "employees": found.employees,
        "founded_year": found.year_founded,
    }
    with db.connection() as connection:
        connection.execute(_UPSERT_COMPANY, parameters)
        insert(connection, "apollo", "apollo.IngestCompany", {"domain": domain})
    return "ok"


def domain_of(website: str) -> str | None:
    """`stripe.com` of `https://www.Stripe.com/de`, None where there is none."""
    try:
        host = urlsplit(website if "//" in website else f"//{website}").hostname or ""
    except ValueError:
        return None
    host = host.rstrip(".").removeprefix("www.")
    return host if "." in host else None
