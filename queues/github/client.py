"""GitHub's REST API: what an answer looks like, and what its refusals mean. The calls are made by conditional.get().

https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api ,
https://docs.github.com/en/rest/using-the-rest-api/troubleshooting-the-rest-api ,
https://docs.github.com/en/rest/repos/repos . Not verified: `Bearer`, the version's date, GET /orgs/{org} and the
fields of an organisation, a repository's counts.
"""

import time
from contextlib import suppress
from datetime import datetime

import msgspec

from queues.http import Answer, Client
from supervisor import RateLimited

_FORBIDDEN = ("Resource not accessible", "organization SAML enforcement", "OAuth App access restrictions")


class Organisation(msgspec.Struct):
    login: str
    description: str | None = None
    blog: str | None = None


class Owner(msgspec.Struct):
    login: str


class Repository(msgspec.Struct):
    """Lists leave `subscribers_count` out."""

    id: int
    name: str
    owner: Owner
    description: str | None = None
    language: str | None = None
    stargazers_count: int | None = None
    forks_count: int | None = None
    subscribers_count: int | None = None
    archived: bool = False
    pushed_at: datetime | None = None


class GitHubClient(Client):
    vendor = "github"
    default_url = "https://api.github.com"

    def headers(self) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
            "User-Agent": "paceline",  # without one GitHub answers 403
        }

    def refusal(self, answer: Answer) -> Exception | None:
        """A 403 is a rate limit, or about this organisation, or else about the token."""
        if answer.status in (403, 429):
            if (wait := _wait(answer)) is not None:
                return RateLimited(wait)
            if any(answer.says(text, "message") for text in _FORBIDDEN):
                return PermissionError("FORBIDDEN: the token is not let in here")
        return super().refusal(answer)


def _wait(answer: Answer) -> float | None:
    """Seconds until GitHub may be asked again; None where this is no rate limit.

    The primary limit names the moment at which it is over, the secondary one a wait, or nothing: then it is a minute.
    """
    if "retry-after" in answer.headers:
        return answer.retry_after()
    if answer.headers.get("x-ratelimit-remaining") == "0":
        with suppress(ValueError):
            return max(1.0, float(answer.headers.get("x-ratelimit-reset", "")) - time.time())
        return answer.retry_after()
    return answer.retry_after() if answer.says("secondary rate limit", "message") else None
