"""apollo.IngestCompany: enrich a company by its domain, then have it summarised and its repositories read."""

from pathlib import Path

import msgspec

from queues.apollo.client import ApolloClient
from supervisor import DB, Context, fail, insert

_UPSERT_COMPANY = (Path(__file__).parent / "upsert_company.sql").read_bytes()


class IngestCompanyArgs(msgspec.Struct):
    domain: str  # lower case, without www.


def ingest_company(ctx: Context, args: IngestCompanyArgs, *, db: DB, client: ApolloClient) -> str:
    found = client.enrich_organization(ctx, args.domain)
    if found is None:
        return fail("no match")
    with db.connection() as connection:  # one transaction: the write and its follow-up jobs, or neither
        parameters = {"domain": args.domain, **msgspec.structs.asdict(found)}
        [(company_id, github_org)] = connection.execute(_UPSERT_COMPANY, parameters)
        insert(connection, "anthropic", "anthropic.SummarizeCompany", {"company_id": company_id})
        if github_org:
            insert(connection, "github", "github.RefreshOrg", {"org": github_org})
    return "ok"
