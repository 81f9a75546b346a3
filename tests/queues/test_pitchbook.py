"""The queue `pitchbook`: pages of deals, the companies behind them, and how it takes each bad answer."""

from typing import Any

import pytest

from deploy.sandbox.companies import BY_DOMAIN, COMPANIES
from deploy.sandbox.server import Reply, Vendor
from queues import pitchbook
from queues.pitchbook.ingest_company import domain_of
from tests.queues.harness import SECRET, Contract, Work

vendor_name = "pitchbook"
STRIPE = BY_DOMAIN["stripe.com"].pitchbook_id


class TestIngestCompany(Contract):
    vendor_name = "pitchbook"
    new_worker = staticmethod(pitchbook.new_worker)
    name, args = "pitchbook.IngestCompany", {"pitchbook_id": STRIPE}
    shape = ({"companyId": STRIPE, "website": [SECRET]}, "at `$.website`")


class TestIngestRecentDeals(Contract):
    vendor_name = "pitchbook"
    new_worker = staticmethod(pitchbook.new_worker)
    name, args = "pitchbook.IngestRecentDeals", {"days": 3}
    ok = f"ok: {len(COMPANIES)} deals, {len(COMPANIES)} new companies"
    shape = ({"stats": {"lastPage": 1}, "items": [{"dealId": "1", "companyId": {"is": SECRET}}]}, "at `$.items[0]")


def run(work: Work, name: str, **args: Any) -> str:
    return work(pitchbook.new_worker, f"pitchbook.{name}", args).status


def page(*deals: tuple[str, str, str], last: int = 1) -> Reply:
    items = [{"dealId": deal, "companyId": company, "companyName": name} for deal, company, name in deals]
    return Reply(200, {"stats": {"total": 9, "perPage": 50, "page": 1, "lastPage": last}, "items": items})


@pytest.mark.parametrize(("status", "rest"), [("ok", 2.0), ("err: HTTP 500", 30.0), ("err: HTTP 402", 600.0)])
def test_the_throttle_lets_30_jobs_begin_in_a_minute_and_backs_off(status: str, rest: float) -> None:
    assert pitchbook.throttle(status, None, 0.0) == rest


def test_all_pages_are_read_and_each_new_company_is_looked_up(work: Work, vendor: Vendor) -> None:
    vendor.tell(page(("d1", "c1", "One"), ("d2", "c2", "Two"), last=2))
    vendor.tell(page(("d3", "c1", "One"), ("d4", "c3", "Three"), last=2))
    assert run(work, "IngestRecentDeals", days=3) == "ok: 4 deals, 3 new companies"
    assert [request.query["page"] for request in vendor.requests] == ["1", "2"]
    assert {request.query["dealDate"][0] for request in vendor.requests} == {">"}
    assert work.rows.execute("SELECT pitchbook_id, company_id, company_name FROM deals ORDER BY 1") == [
        ("d1", "c1", "One"),
        ("d2", "c2", "Two"),
        ("d3", "c1", "One"),
        ("d4", "c3", "Three"),
    ]
    assert work.enqueued() == [("pitchbook", "pitchbook.IngestCompany", {"pitchbook_id": f"c{n}"}) for n in (1, 2, 3)]


def test_a_deal_seen_again_asks_for_nothing_and_neither_does_a_company_that_is_known(
    work: Work, vendor: Vendor
) -> None:
    vendor.tell(page(("d1", "c1", "One")))
    run(work, "IngestRecentDeals")
    work.rows.execute("DELETE FROM jobs")
    work.rows.execute("INSERT INTO companies (domain, name, pitchbook_id) VALUES ('two.example', 'Two', 'c2')")
    vendor.tell(page(("d1", "c1", "One Inc"), ("d2", "c2", "Two"), ("d2", "c2", "Two")))
    assert run(work, "IngestRecentDeals") == "ok: 3 deals, 0 new companies"
    assert work.enqueued() == []
    assert work.rows.execute("SELECT company_name FROM deals ORDER BY pitchbook_id") == [("One Inc",), ("Two",)]


def test_pages_that_were_read_stay_when_a_later_one_fails(work: Work, vendor: Vendor) -> None:
    """They were paid for, and so their companies are looked up."""
    vendor.tell(page(("d1", "c1", "One"), last=2))
    vendor.tell(500)
    assert run(work, "IngestRecentDeals") == "err: HTTP 500"
    assert work.rows.execute("SELECT pitchbook_id FROM deals") == [("d1",)]
    assert work.enqueued() == [("pitchbook", "pitchbook.IngestCompany", {"pitchbook_id": "c1"})]


def test_no_deals_is_a_skip(work: Work, vendor: Vendor) -> None:
    vendor.tell(page())
    assert run(work, "IngestRecentDeals").startswith("skip: no deals since 2")


def test_a_company_is_written_and_enriched_next(work: Work) -> None:
    assert run(work, "IngestCompany", pitchbook_id=STRIPE) == "ok"
    assert work.rows.execute("SELECT domain, name, pitchbook_id FROM companies") == [("stripe.com", "Stripe", STRIPE)]
    assert work.enqueued() == [("apollo", "apollo.IngestCompany", {"domain": "stripe.com"})]


def test_a_company_that_is_known_by_its_domain_keeps_what_is_known(work: Work) -> None:
    work.rows.execute(
        "INSERT INTO companies (domain, name, github_org, employees) VALUES ('stripe.com', 'S.', 'stripe', 7)"
    )
    assert run(work, "IngestCompany", pitchbook_id=STRIPE) == "ok"
    assert work.rows.execute("SELECT name, github_org, employees, pitchbook_id FROM companies") == [
        ("S.", "stripe", 7, STRIPE)
    ]


def test_a_company_that_pitchbook_does_not_know_or_that_has_no_website_is_a_fail(work: Work, vendor: Vendor) -> None:
    assert run(work, "IngestCompany", pitchbook_id="0/../0") == "fail: no such company"
    assert vendor.requests[0].path == "/companies/0%2F..%2F0/bio"
    vendor.tell(Reply(200, {"companyId": STRIPE, "website": None}))
    assert run(work, "IngestCompany", pitchbook_id=STRIPE) == "fail: no website"
    assert work.rows.execute("SELECT 1 FROM companies") == []
    assert work.enqueued() == []


@pytest.mark.parametrize(
    ("website", "domain"),
    [
        ("www.stripe.com", "stripe.com"),
        ("https://www.Stripe.com/de?a=b", "stripe.com"),
        ("http://user@stripe.com:80", "stripe.com"),
        ("blog.stripe.com.", "blog.stripe.com"),
        ("", None),
        ("localhost", None),
        ("http://[", None),
    ],
)
def test_a_domain_is_the_host_of_a_website_without_www(website: str, domain: str | None) -> None:
    assert domain_of(website) == domain
