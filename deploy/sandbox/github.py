"""GitHub's stand-in: the organisations of the fifty companies, with invented repositories.

What is known of the vendor is in queues/github/client.py. Not verified: the bodies of 401 and 404, and that a header
X-GitHub-Api-Version of another date is a 400.
"""

import hashlib
import json
import time
from datetime import UTC, datetime, timedelta

from deploy.sandbox.companies import COMPANIES, Company, number
from deploy.sandbox.server import TOKEN, Refused, Reply, Request, Vendor

LIMIT = 5_000  # requests an hour
RECENT = 3  # repositories of each organisation that were pushed to in the last days
LANGUAGES = ("Go", "Python", "Rust", "TypeScript", None)


class GitHub(Vendor):
    name = "github"

    def __init__(self) -> None:
        super().__init__()
        self.remaining, self._hour = LIMIT, 0
        self._since = datetime.now(UTC).replace(microsecond=0)  # fixed, so that ETags are
        self._orgs = {company.github.lower(): company for company in COMPANIES}
        self._repos = {company.github: repositories(company, self._since) for company in COMPANIES}

    def reset(self) -> None:
        super().reset()
        self.remaining = LIMIT

    def authorise(self, request: Request) -> None:
        if not request.headers.get("user-agent"):
            text = b"Request forbidden by administrative rules. Please make sure your request has a User-Agent header"
            raise Refused(Reply(403, text, {"Content-Type": "text/html"}))
        if self._hour != (hour := int(time.time()) // 3600):
            self.remaining, self._hour = LIMIT, hour
        if not self.remaining:
            raise Refused(self._error(403, "API rate limit exceeded for user"))
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if (scheme.lower(), token) not in (("bearer", TOKEN), ("token", TOKEN)):
            raise Refused(self._error(401, f"Bad credentials: {token}"))
        if request.headers.get("x-github-api-version", "2022-11-28") != "2022-11-28":
            raise Refused(self._error(400, "not a supported version"))

    def refusal(self, status: int, retry_after: float) -> Reply:
        match status:
            case 403:
                return self._error(403, "Resource not accessible by personal access token")
            case 404:
                return self._error(404, "Not Found")
            case 429:
                return self._error(
                    429, "You have exceeded a secondary rate limit.", {"retry-after": f"{retry_after:g}"}
                )
        return self._error(status, f"status {status}")

    def listed(self, org: str) -> list[dict[str, object]]:
        """The organisation's repositories, the oldest first."""
        return self._repos[org]

    def recent(self, org: str) -> list[dict[str, object]]:
        """Those that were pushed to of late, and that are worth a look."""
        return [entry for entry in self._repos[org][-RECENT:] if not entry["archived"]]

    def org(self, request: Request, org: str) -> Reply:
        company = self._orgs.get(org.lower())
        if company is None:
            return self.refusal(404, 0)
        body = {
            "login": company.github,
            "id": number(company.github, 1, 1 << 30),
            "description": f"{company.name} on GitHub",
            "blog": f"https://{company.domain}",
            "public_repos": len(self._repos[company.github]),
        }
        return self._answer(request, body)

    def repos(self, request: Request, org: str) -> Reply:
        company = self._orgs.get(org.lower())
        if company is None:
            return self.refusal(404, 0)
        page, size = request.query.get("page", "1"), request.query.get("per_page", "30")
        if not (page.isdigit() and size.isdigit() and int(page) >= 1 and 1 <= int(size) <= 100):
            return self._error(422, "Validation Failed")
        all, first = self._repos[company.github], (int(page) - 1) * int(size)
        link = {}
        if first + int(size) < len(all):
            query = "&".join(f"{key}={value}" for key, value in {**request.query, "page": int(page) + 1}.items())
            link = {"Link": f'<{request.base}/orgs/{org}/repos?{query}>; rel="next", <{request.base}/last>; rel="last"'}
        return self._answer(request, all[first : first + int(size)], link)

    def repo(self, request: Request, owner: str, repo: str) -> Reply:
        """Each also has an old name, `old-...`."""
        company = self._orgs.get(owner.lower())
        found = {str(entry["name"]): entry for entry in self._repos[company.github]} if company else {}
        if repo.startswith("old-") and (renamed := found.get(repo.removeprefix("old-"))):
            return self._moved(f"{request.base}/repositories/{renamed['id']}")
        return self._alone(request, found.get(repo))

    def by_id(self, request: Request, id: str) -> Reply:
        every = (entry for entries in self._repos.values() for entry in entries)
        return self._alone(request, next((entry for entry in every if str(entry["id"]) == id), None))

    routes = (
        ("GET", "/orgs/(?P<org>[^/]+)", org),
        ("GET", "/orgs/(?P<org>[^/]+)/repos", repos),
        ("GET", "/repos/(?P<owner>[^/]+)/(?P<repo>[^/]+)", repo),
        ("GET", "/repositories/(?P<id>[0-9]+)", by_id),
    )

    def _alone(self, request: Request, found: dict[str, object] | None) -> Reply:
        """Read by itself, a repository tells more."""
        if found is None:
            return self.refusal(404, 0)
        return self._answer(request, {**found, "subscribers_count": number(str(found["full_name"]), 1, 400)})

    def _answer(self, request: Request, body: object, headers: dict[str, str] | None = None) -> Reply:
        etag = f'W/"{hashlib.sha256(json.dumps(body).encode()).hexdigest()}"'
        if request.headers.get("if-none-match") == etag:
            return Reply(304, b"", {**self._rate(), "ETag": etag})  # free, and without Link
        self.remaining -= 1
        return Reply(200, body, {**self._rate(), "ETag": etag, **(headers or {})})

    def _moved(self, url: str) -> Reply:
        self.remaining -= 1
        return Reply(301, {"message": "Moved Permanently", "url": url}, {**self._rate(), "Location": url})

    def _error(self, status: int, message: str, headers: dict[str, str] | None = None) -> Reply:
        body = {"message": message, "documentation_url": "https://docs.github.com/rest", "status": str(status)}
        return Reply(status, body, {**self._rate(), **(headers or {})})

    def _rate(self) -> dict[str, str]:
        """A window ends at each full hour."""
        return {
            "x-ratelimit-limit": str(LIMIT),
            "x-ratelimit-remaining": str(self.remaining),
            "x-ratelimit-used": str(LIMIT - self.remaining),
            "x-ratelimit-reset": str((int(time.time()) // 3600 + 1) * 3600),
            "x-ratelimit-resource": "core",
        }


def repositories(company: Company, since: datetime) -> list[dict[str, object]]:
    """The oldest first. Some organisations have more than a page of 100."""
    count = number(f"{company.github} repositories", 4, 130)
    return [repository(company, place, count - place, since) for place in range(count)]


def repository(company: Company, place: int, from_last: int, since: datetime) -> dict[str, object]:
    name = f"{company.industry.replace(' ', '-')}-{place + 1}"
    seed = f"{company.github}/{name}"
    days = number(seed, 1, 20) if from_last <= RECENT else number(seed, 120, 2_000)
    return {
        "id": number(company.github, 1, 1 << 30) * 1_000 + place,
        "name": name,
        "full_name": seed,
        "owner": {"login": company.github, "type": "Organization"},
        "private": False,
        "description": f"One of {company.name}'s",
        "language": LANGUAGES[number(seed, 0, len(LANGUAGES) - 1)],
        "stargazers_count": number(seed, 0, 30_000),
        "forks_count": number(seed, 0, 3_000),
        "archived": place % 7 == 3,
        "pushed_at": f"{since - timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}",
    }
