"""GET that costs nothing where nothing has changed: what was picked out of each answer is kept with its ETag.

https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api: a 304 to an authorised
request does not count against the primary limit. An ETag is of one page, and a 304 has no Link header
(https://github.community/t/how-to-correctly-use-etag-with-the-paginated-responses-in-rest-api/209783), so that the way
to the next page is kept, too. Since the answer itself is kept, a handler need not know which of the two it got, and
what it writes need not be in one transaction with the ETag.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from psycopg.types.json import Jsonb

from queues.github.client import GitHubClient
from supervisor import DB, Context

T = TypeVar("T")

_HERE = Path(__file__).parent
_CACHED = (_HERE / "cached.sql").read_bytes()
_KEEP = (_HERE / "keep.sql").read_bytes()
_VERSION = 1  # of the fields that are picked: one more of them means one more here, else it stays unread
_KEEP_DAYS = 30


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    value: T
    next: str | None  # path of the next page


def get(ctx: Context, db: DB, client: GitHubClient, path: str, type: type[T]) -> Found[T] | None:
    """What is at that path, by way of the cache; None for a 404, which is also GitHub's word for "not for you"."""
    key = f"github {_VERSION} {path}"
    etag, known = _kept(db, key, type)
    ask = partial(client.call, ctx, "GET", path, redirects=3)
    answer = ask(headers={"If-None-Match": etag}, fine=(304, 404)) if known else ask(fine=(404,))
    if answer.status == 404:
        return None
    if answer.status == 304 and known:
        found = known
    else:
        found = Found(answer.read(type), _next(answer.headers.get("link", ""), client))
        etag = answer.headers.get("etag", "")
    if etag:
        value = Jsonb({"value": msgspec.to_builtins(found.value), "next": found.next})
        with db.connection() as connection:
            connection.execute(_KEEP, {"key": key, "value": value, "etag": etag, "days": _KEEP_DAYS})
    return found


def _kept(db: DB, key: str, type: type[T]) -> tuple[str, Found[T] | None]:
    """An ETag and what came with it; None where there is none of that shape."""
    with db.connection() as connection:
        row = connection.execute(_CACHED, {"key": key}).fetchone()
    if row:
        etag, kept = row
        with suppress(msgspec.ValidationError, LookupError, TypeError):
            return etag, Found(msgspec.convert(kept["value"], type), kept["next"])
    return "", None


def _next(link: str, client: GitHubClient) -> str | None:
    """The path that a Link header leads on to. Without the host: another one may be asked when it is used."""
    found = re.search(r'<([^>]*)>;[^,]*\brel="next"', link)
    return found[1].removeprefix(client.url) if found else None
