"""The queue `apollo`: what it asks, what it writes, what it enqueues, and how it takes each bad answer."""

import pytest

from deploy.sandbox.server import Reply, Vendor
from queues import apollo
from tests.queues.harness import SECRET, Contract, Work

vendor_name = "apollo"
SCOPE = "err: API_INACCESSIBLE: not in the key's scope or the plan"


class TestIngestCompany(Contract):
    vendor_name = "apollo"
    new_worker = staticmethod(apollo.new_worker)
    name, args = "apollo.IngestCompany", {"domain": "stripe.com"}
    other_403 = (403, SCOPE)
    shape = ({"organization": {"id": "x", "name": [SECRET]}}, "at `$.organization.name`")


class TestRefreshPerson(Contract):
    vendor_name = "apollo"
    new_worker = staticmethod(apollo.new_worker)
    name, args = "apollo.RefreshPerson", {"email": "ada.lovelace@stripe.com"}
    other_403 = (403, SCOPE)
    shape = ({"person": {"id": [SECRET]}}, "at `$.person.id`")


def ingest(work: Work, domain: str) -> str:
    return work(apollo.new_worker, "apollo.IngestCompany", {"domain": domain}).status


@pytest.mark.parametrize(
    ("status", "rest"),
    [
        ("ok", 0.4),
        ("fail: no match", 0.4),
        ("err: HTTP 500", 10.0),
        ("err: rate limited, retry after 12s", 60.0),
        (SCOPE, 60.0),
    ],
)
def test_the_throttle_lets_150_jobs_begin_in_a_minute_and_backs_off(status: str, rest: float) -> None:
    assert apollo.throttle(status, None, 0.0) == pytest.approx(rest)


def test_a_company_is_written_and_its_summary_asked_for(work: Work, vendor: Vendor) -> None:
    assert ingest(work, "stripe.com") == "ok"
    [(name, industry, employees, website, enriched)] = work.rows.execute(
        "SELECT name, industry, employees, website, enriched_at IS NOT NULL FROM companies WHERE domain = 'stripe.com'"
    )
    assert (name, industry, website, enriched) == ("Stripe", "payments", "http://www.stripe.com", True)
    assert employees > 0
    assert work.enqueued() == [("anthropic", "anthropic.SummarizeCompany", {"company_id": 1})]
    [request] = vendor.requests
    assert (request.method, request.path, dict(request.query)) == (
        "GET",
        "/organizations/enrich",
        {"domain": "stripe.com"},
    )


def test_repositories_are_asked_for_where_the_organisation_is_known(work: Work) -> None:
    work.rows.execute("INSERT INTO companies (name, domain, github_org) VALUES ('?', 'stripe.com', 'stripe')")
    assert ingest(work, "stripe.com") == "ok"
    assert work.rows.execute("SELECT name, github_org FROM companies") == [("Stripe", "stripe")]
    assert work.enqueued() == [
        ("anthropic", "anthropic.SummarizeCompany", {"company_id": 1}),
        ("github", "github.RefreshOrg", {"org": "stripe"}),
    ]


def test_what_apollo_does_not_say_stays_as_it_was(work: Work, vendor: Vendor) -> None:
    assert ingest(work, "stripe.com") == "ok"
    before = work.rows.execute("SELECT name, industry, employees, description FROM companies")
    vendor.tell(Reply(200, {"organization": {"id": "other", "name": None}}))
    assert ingest(work, "stripe.com") == "ok"
    assert work.rows.execute("SELECT name, industry, employees, description FROM companies") == before
    assert work.rows.execute("SELECT apollo_id FROM companies") == [("other",)]


@pytest.mark.parametrize("body", [{}, {"organization": None}])
def test_no_match_is_a_fail_and_writes_nothing(body: dict[str, None], work: Work, vendor: Vendor) -> None:
    vendor.tell(Reply(200, body))
    assert ingest(work, "nobody.example") == "fail: no match"
    assert work.rows.execute("SELECT 1 FROM companies") == []
    assert work.enqueued() == []


def test_a_parameter_that_apollo_refuses_is_an_err_that_does_not_repeat_it(work: Work) -> None:
    assert ingest(work, "www.planted.example") == "err: HTTP 422"
    work.rows.execute("DELETE FROM jobs")  # its args hold it, of course


def test_a_person_is_written_with_their_company(work: Work) -> None:
    assert ingest(work, "stripe.com") == "ok"
    for _ in range(2):
        done = work(apollo.new_worker, "apollo.RefreshPerson", {"email": " Ada.Lovelace@Stripe.com "})
        assert done.status == "ok"
    assert work.rows.execute("SELECT email, name, company_id FROM people") == [
        ("ada.lovelace@stripe.com", "Ada Lovelace", 1)
    ]


def test_a_person_without_a_match_is_a_fail(work: Work) -> None:
    done = work(apollo.new_worker, "apollo.RefreshPerson", {"email": "ada@nobody.example"})
    assert done.status == "fail: no match"
    assert work.rows.execute("SELECT 1 FROM people") == []
