"""apollo.RefreshPerson: look a person up by the address of their mail."""

from pathlib import Path

import msgspec

from queues.apollo.client import ApolloClient
from supervisor import DB, Context, fail

_UPSERT_PERSON = (Path(__file__).parent / "upsert_person.sql").read_bytes()


class RefreshPersonArgs(msgspec.Struct):
    email: str


def refresh_person(ctx: Context, args: RefreshPersonArgs, *, db: DB, client: ApolloClient) -> str:
    email = args.email.strip().lower()
    found = client.match_person(ctx, email)
    if found is None:
        return fail("no match")
    with db.connection() as connection:
        parameters = {"email": email, "domain": email.rpartition("@")[2], **msgspec.structs.asdict(found)}
        connection.execute(_UPSERT_PERSON, parameters)
    return "ok"
