"""The stand-ins refuse what the vendors refuse; else a green test would say little of the clients."""

import json
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from deploy.sandbox.companies import COMPANIES
from deploy.sandbox.server import TOKEN, Sandbox

APOLLO = {"x-api-key": TOKEN}
GITHUB = {"authorization": f"Bearer {TOKEN}", "user-agent": "test"}
PITCHBOOK = {"authorization": f"PB-Token {TOKEN}"}


def ask(sandbox: Sandbox, method: str, path: str, headers: dict[str, str], body: str | None = None) -> tuple[int, str]:
    connection = HTTPConnection(urlsplit(sandbox.url).netloc)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/apollo/organizations/enrich?domain=stripe.com", APOLLO, 200),
        ("GET", "/apollo/organizations/enrich?domain=nobody.example", APOLLO, 200),
        ("GET", "/apollo/organizations/enrich?domain=stripe.com", {}, 401),
        ("GET", "/apollo/organizations/enrich?domain=stripe.com", {"x-api-key": "other"}, 401),
        ("GET", "/apollo/organizations/enrich?domain=stripe.com", {"authorization": f"Bearer {TOKEN}"}, 401),
        ("GET", "/apollo/organizations/enrich", APOLLO, 422),
        ("GET", "/apollo/organizations/enrich?domain=", APOLLO, 422),
        ("GET", "/apollo/organizations/enrich?domain=www.stripe.com", APOLLO, 422),
        ("GET", "/apollo/organizations/enrich?domain=a@stripe.com", APOLLO, 422),
        ("POST", "/apollo/organizations/enrich?domain=stripe.com", APOLLO, 405),
        ("GET", "/apollo/organization/enrich?domain=stripe.com", APOLLO, 404),
        ("POST", "/apollo/people/match?email=ada@stripe.com", APOLLO, 200),
        ("POST", "/apollo/people/match", APOLLO, 422),
        ("GET", "/apollo/people/match?email=ada@stripe.com", APOLLO, 405),
        ("GET", "/github/orgs/STRIPE", GITHUB, 200),
        ("GET", "/github/orgs/stripe", {**GITHUB, "authorization": f"token {TOKEN}"}, 200),
        ("GET", "/github/orgs/stripe", {**GITHUB, "authorization": f"Basic {TOKEN}"}, 401),
        ("GET", "/github/orgs/stripe", {"user-agent": "test"}, 401),
        ("GET", "/github/orgs/stripe", {"authorization": f"Bearer {TOKEN}"}, 403),
        ("GET", "/github/orgs/stripe", {**GITHUB, "x-github-api-version": "2011-01-01"}, 400),
        ("GET", "/github/orgs/nobody", GITHUB, 404),
        ("GET", "/github/orgs/nobody/repos", GITHUB, 404),
        ("GET", "/github/orgs/stripe/repos?per_page=100", GITHUB, 200),
        ("GET", "/github/orgs/stripe/repos?per_page=101", GITHUB, 422),
        ("POST", "/github/orgs/stripe/repos", GITHUB, 405),
        ("GET", "/github/repos/stripe/nothing", GITHUB, 404),
        ("GET", "/github/repos/stripe/payments-1", GITHUB, 200),
        ("GET", "/github/repos/stripe/old-payments-1", GITHUB, 301),
        ("GET", "/github/repos/stripe", GITHUB, 404),
        ("GET", "/anthropic/v1/messages", {}, 405),
        ("POST", "/anthropic/v1/message", {}, 404),
        ("GET", "/pitchbook/deals/search?dealDate=%3E2026-11-01&page=1&perPage=50", PITCHBOOK, 200),
        ("GET", "/pitchbook/deals/search?page=1", PITCHBOOK, 400),
        ("GET", "/pitchbook/deals/search?dealDate=2026-11-01", PITCHBOOK, 400),
        ("GET", "/pitchbook/deals/search?dealDate=%3E2026-11-01&page=0", PITCHBOOK, 400),
        ("GET", "/pitchbook/deals/search?dealDate=%3E2026-11-01", {"authorization": f"Bearer {TOKEN}"}, 401),
        ("POST", "/pitchbook/deals/search?dealDate=%3E2026-11-01", PITCHBOOK, 405),
        ("GET", "/pitchbook/companies/1-2/bio", PITCHBOOK, 404),
        ("GET", "/pitchbook/companies/1-2", PITCHBOOK, 404),
        ("GET", "/nobody/x", {}, 404),
        ("GET", "/", {}, 404),
    ],
)
def test_a_request_is_taken_or_refused_as_by_the_vendor(
    method: str, path: str, headers: dict[str, str], status: int, sandbox: Sandbox
) -> None:
    assert ask(sandbox, method, path, headers)[0] == status


def test_parameters_of_apollos_post_belong_in_its_query(sandbox: Sandbox) -> None:
    headers = {**APOLLO, "content-type": "application/json"}
    assert ask(sandbox, "POST", "/apollo/people/match", headers, json.dumps({"email": "ada@stripe.com"}))[0] == 422


ANTHROPIC = {"x-api-key": TOKEN, "anthropic-version": "2023-06-01", "content-type": "application/json"}
MESSAGE = {"model": "claude-sandbox", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}]}


@pytest.mark.parametrize(
    ("headers", "body", "status", "kind"),
    [
        (ANTHROPIC, MESSAGE, 200, "message"),
        ({**ANTHROPIC, "x-api-key": "other"}, MESSAGE, 401, "authentication_error"),
        ({"authorization": f"Bearer {TOKEN}"}, MESSAGE, 401, "authentication_error"),
        ({**ANTHROPIC, "anthropic-version": ""}, MESSAGE, 400, "invalid_request_error"),
        ({**ANTHROPIC, "content-type": "text/plain"}, MESSAGE, 400, "invalid_request_error"),
        (ANTHROPIC, {**MESSAGE, "max_tokens": 0}, 400, "invalid_request_error"),
        (ANTHROPIC, {**MESSAGE, "messages": []}, 400, "invalid_request_error"),
        (ANTHROPIC, {**MESSAGE, "model": "claude-of-old"}, 404, "not_found_error"),
        (ANTHROPIC, [], 400, "invalid_request_error"),
    ],
)
def test_a_message_is_taken_or_refused_as_by_anthropic(
    headers: dict[str, str], body: object, status: int, kind: str, sandbox: Sandbox
) -> None:
    given, answer = ask(sandbox, "POST", "/anthropic/v1/messages", headers, json.dumps(body))
    told = json.loads(answer)
    assert (given, told["error"]["type"] if "error" in told else told["type"]) == (status, kind)


def test_pages_hold_each_deal_once(sandbox: Sandbox) -> None:
    deals = []
    for page in (1, 2, 3):
        path = f"/pitchbook/deals/search?dealDate=%3E2026-11-01&page={page}&perPage=20"
        found = json.loads(ask(sandbox, "GET", path, PITCHBOOK)[1])
        assert found["stats"] == {"total": len(COMPANIES), "perPage": 20, "page": page, "lastPage": 3}
        deals += [item["dealId"] for item in found["items"]]
    assert len(set(deals)) == len(deals) == len(COMPANIES)


def test_requests_are_counted_and_those_of_nobody_are_not(sandbox: Sandbox) -> None:
    ask(sandbox, "GET", "/apollo/organizations/enrich", {})
    ask(sandbox, "GET", "/nobody/x", {})
    assert {name: vendor.count for name, vendor in sandbox.vendors.items() if vendor.count} == {"apollo": 1}


def test_what_was_told_is_done_in_order_and_then_it_is_over(sandbox: Sandbox) -> None:
    apollo = sandbox.vendors["apollo"]
    apollo.tell(429, retry_after=7, times=2)
    apollo.tell(500)
    path = "/apollo/organizations/enrich?domain=stripe.com"
    assert [ask(sandbox, "GET", path, APOLLO)[0] for _ in range(4)] == [429, 429, 500, 200]
