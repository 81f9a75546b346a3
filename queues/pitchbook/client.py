"""PitchBook's API v2: the search for deals, and a company's bio.

The header is from the vendor's public collection, https://documenter.gw.postman.com/view/metadata/TzCV1iRc . Not
verified, since only seen in an open-source integration (simstudioai/sim, 2026): the base URL, both paths and their
fields, the date's range. Not found anywhere: what 403, 429 and the end of the credits look like. A 401's body repeats
the key.
"""

from collections.abc import Iterator
from datetime import date
from urllib.parse import quote

import msgspec

from queues.http import Client
from supervisor import Context

_PER_PAGE = 50


class Deal(msgspec.Struct, rename="camel"):
    deal_id: str
    company_id: str
    company_name: str


class _Stats(msgspec.Struct, rename="camel"):
    last_page: int


class _Deals(msgspec.Struct):
    stats: _Stats
    items: list[Deal]


class _Name(msgspec.Struct, rename="camel"):
    formal_name: str | None = None


class Company(msgspec.Struct, rename="camel"):
    company_id: str
    company_name: _Name | None = None
    website: str | None = None
    description: str | None = None
    employees: int | None = None
    year_founded: int | None = None


class PitchBookClient(Client):
    vendor = "pitchbook"
    default_url = "https://api.pitchbook.com"

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"PB-Token {self.token}"}

    def deals_since(self, ctx: Context, day: date) -> Iterator[list[Deal]]:
        """Deals from that day on, a page at a time; one request for each page, made when it is asked for."""
        page = last = 1
        while page <= last:
            query = {"dealDate": f">{day:%Y-%m-%d}", "page": page, "perPage": _PER_PAGE}
            found = self.call(ctx, "GET", "/deals/search", query).read(_Deals)
            yield found.items
            page, last = page + 1, found.stats.last_page

    def company(self, ctx: Context, id: str) -> Company | None:
        """A company's bio, None where PitchBook knows no such id."""
        answer = self.call(ctx, "GET", f"/companies/{quote(id, safe='')}/bio", fine=(404,))
        return None if answer.status == 404 else answer.read(Company)
