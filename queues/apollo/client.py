"""Apollo's API: the two enrichments.

https://docs.apollo.io/reference/organization-enrichment , https://docs.apollo.io/reference/people-enrichment ,
https://docs.apollo.io/reference/status-codes . Paths, parameters, the header and the errors are from a copy of the
vendor's OpenAPI (August 2026). Not verified: the shape of "no match" (an empty object and a null are both taken for
it), and the names of the fields estimated_num_employees and short_description.
"""

import msgspec

from queues.http import Answer, Client
from supervisor import Context


class Organization(msgspec.Struct):
    id: str
    name: str | None = None
    primary_domain: str | None = None
    website_url: str | None = None
    linkedin_url: str | None = None
    industry: str | None = None
    short_description: str | None = None
    estimated_num_employees: int | None = None
    founded_year: int | None = None


class Person(msgspec.Struct):
    id: str
    name: str | None = None
    title: str | None = None
    linkedin_url: str | None = None
    github_url: str | None = None


class _Organization(msgspec.Struct):
    organization: Organization | None = None


class _Person(msgspec.Struct):
    person: Person | None = None


class ApolloClient(Client):
    vendor = "apollo"
    default_url = "https://api.apollo.io/api/v1"

    def headers(self) -> dict[str, str]:
        return {"x-api-key": self.token}

    def refusal(self, answer: Answer) -> Exception | None:
        """A 403 is about this endpoint and the key's scope or plan: other jobs of the queue may well run."""
        if answer.status == 403 and answer.word("error_code") == "API_INACCESSIBLE":
            return PermissionError("API_INACCESSIBLE: not in the key's scope or the plan")
        return super().refusal(answer)

    def enrich_organization(self, ctx: Context, domain: str) -> Organization | None:
        """The organization of that domain, None where Apollo has none. Costs a credit."""
        return self.call(ctx, "GET", "/organizations/enrich", {"domain": domain}).read(_Organization).organization

    def match_person(self, ctx: Context, email: str) -> Person | None:
        """The person with that address, None where Apollo has none. The parameters of this POST are in its query."""
        return self.call(ctx, "POST", "/people/match", {"email": email}).read(_Person).person
