"""Apollo's stand-in. What it knows of the vendor is in queues/apollo/client.py; the texts of errors are near the
vendor's. Not verified: that a domain with www. or @ is a 422, and the answer without a match.
"""

import re

from deploy.sandbox.companies import BY_DOMAIN, Company, number
from deploy.sandbox.server import TOKEN, Refused, Reply, Request, Vendor


class Apollo(Vendor):
    name = "apollo"

    def authorise(self, request: Request) -> None:
        if request.headers.get("x-api-key") != TOKEN:
            given = request.headers.get("x-api-key", "")
            text = f"Invalid API key. {given} is not one of ours."
            raise Refused(Reply(401, text.encode(), {"Content-Type": "text/plain"}))

    def refusal(self, status: int, retry_after: float) -> Reply:
        match status:
            case 401:
                return Reply(401, b"Invalid API key.", {"Content-Type": "text/plain"})
            case 403:
                return Reply(403, {"error": "not accessible with this key", "error_code": "API_INACCESSIBLE"})
            case 429:
                text = "The maximum number of api calls allowed for api/v1/organizations/enrich is 600 times per hour."
                return Reply(429, {"message": text}, {"retry-after": f"{retry_after:g}"})
        return Reply(status, {"error": f"status {status}"})

    def enrich(self, request: Request) -> Reply:
        domain = request.query.get("domain", "")
        if not domain:
            return Reply(422, {"error": "Required parameter 'domain' missing"})
        if domain.startswith("www.") or not re.fullmatch(r"[^@/\s]+\.[^@/\s]+", domain):
            return Reply(422, {"error": "Parameter 'domain' is invalid"})
        company = BY_DOMAIN.get(domain)
        return Reply(200, {"organization": organization(company)} if company else {})

    def match(self, request: Request) -> Reply:
        if request.body:
            return Reply(422, {"error": "parameters belong in the query"})
        email = request.query.get("email", "")
        name, at, domain = email.partition("@")
        if not name or not at:
            return Reply(422, {"error": "Required parameter 'email' missing"})
        company = BY_DOMAIN.get(domain)
        return Reply(200, {"person": person(name, company) if company else None})

    routes = (("GET", "/organizations/enrich", enrich), ("POST", "/people/match", match))


def organization(company: Company) -> dict[str, object]:
    return {
        "id": f"{number(company.domain, 1 << 20, 1 << 31):024x}",
        "name": company.name,
        "website_url": f"http://www.{company.domain}",
        "primary_domain": company.domain,
        "linkedin_url": None,
        "industry": company.industry,
        "keywords": [company.industry],
        "founded_year": None,
        "estimated_num_employees": number(company.domain, 50, 9_000),
        "short_description": f"{company.name} is a company in {company.industry}.",
    }


def person(name: str, company: Company) -> dict[str, object]:
    full = " ".join(part.capitalize() for part in name.split("."))
    return {
        "id": f"{number(full + company.domain, 1 << 20, 1 << 31):024x}",
        "name": full,
        "title": "Invented Person",
        "email": f"{name}@{company.domain}",
        "email_status": "verified",
        "linkedin_url": None,
        "github_url": None,
        "employment_history": [],
    }
