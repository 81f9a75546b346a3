"""PitchBook's stand-in: the fifty companies have a deal each. What is known of the vendor is in
queues/pitchbook/client.py; not verified: the answers to a bad parameter, 403 and 429.
"""

import re

from deploy.sandbox.companies import BY_PITCHBOOK_ID, COMPANIES, number
from deploy.sandbox.server import TOKEN, Refused, Reply, Request, Vendor


class PitchBook(Vendor):
    name = "pitchbook"

    def authorise(self, request: Request) -> None:
        given = request.headers.get("authorization", "")
        if given != f"PB-Token {TOKEN}":
            raise Refused(unauthorized(given.removeprefix("PB-Token ")))

    def refusal(self, status: int, retry_after: float) -> Reply:
        match status:
            case 401:
                return unauthorized("a key")
            case 404:
                return Reply(404, {"reason": "NOT_FOUND", "message": "not found"})
            case 429:
                return Reply(429, {"reason": "TOO_MANY_REQUESTS"}, {"Retry-After": f"{retry_after:g}"})
        return Reply(status, {"reason": f"STATUS_{status}", "message": ""})

    def search(self, request: Request) -> Reply:
        if not re.fullmatch(r">\d{4}-\d\d-\d\d", request.query.get("dealDate", "")):
            return Reply(400, {"reason": "BAD_REQUEST", "message": "dealDate"})
        page, size = request.query.get("page", "1"), request.query.get("perPage", "50")
        if not (page.isdigit() and size.isdigit() and 1 <= int(size) <= 100 and int(page) >= 1):
            return Reply(400, {"reason": "BAD_REQUEST", "message": "page"})
        return self.page(int(page), int(size))

    def page(self, page: int, size: int) -> Reply:
        items = [
            {
                "dealId": f"{number(company.domain + 'deal', 10_000, 99_999)}-{number(company.name, 10, 99)}T",
                "companyId": company.pitchbook_id,
                "companyName": company.name,
            }
            for company in COMPANIES
        ]
        stats = {"total": len(items), "perPage": size, "page": page, "lastPage": -(-len(items) // size)}
        return Reply(200, {"stats": stats, "items": items[(page - 1) * size : page * size]})

    def bio(self, request: Request, id: str) -> Reply:
        company = BY_PITCHBOOK_ID.get(id)
        if company is None:
            return self.refusal(404, 0)
        return Reply(
            200,
            {
                "companyId": id,
                "companyName": {"formalName": company.name, "legalName": None},
                "website": f"www.{company.domain}",
                "description": f"{company.name} is a company in {company.industry}.",
                "employees": number(company.domain, 50, 9_000),
                "yearFounded": None,
            },
        )

    routes = (("GET", "/deals/search", search), ("GET", "/companies/(?P<id>[^/]+)/bio", bio))


def unauthorized(key: str) -> Reply:
    """The vendor's own answer does repeat the key."""
    return Reply(401, {"reason": "UNAUTHORIZED", "message": f"Active API key {key} not found"})
