"""The queue `github`: pages, ETags, renamed repositories, its two rate limits, and how it takes each bad answer."""

import time
from typing import Any

import pytest

from deploy.sandbox.companies import COMPANIES
from deploy.sandbox.github import GitHub
from deploy.sandbox.server import Reply, Vendor
from queues import github
from tests.queues.harness import SECRET, Contract, Done, Work

vendor_name = "github"
FORBIDDEN = "err: FORBIDDEN: the token is not let in here"
COUNTS = {company.github: len(GitHub().listed(company.github)) for company in COMPANIES}
SMALL = next(org for org, count in COUNTS.items() if 20 < count < 100)
LARGE = next(org for org, count in COUNTS.items() if count > 100)
STALE = {org: len(GitHub().recent(org)) for org in COUNTS}


def ok(org: str, stale: int | None = None) -> str:
    return f"ok: {COUNTS[org]} repositories, {STALE[org] if stale is None else stale} stale"


class TestRefreshOrg(Contract):
    vendor_name = "github"
    new_worker = staticmethod(github.new_worker)
    name, args = "github.RefreshOrg", {"org": LARGE}
    ok, calls = ok(LARGE), 3
    other_403 = (403, FORBIDDEN)
    shape = ({"login": [SECRET]}, "at `$.login`")


class TestRefreshRepo(Contract):
    vendor_name = "github"
    new_worker = staticmethod(github.new_worker)
    name = "github.RefreshRepo"
    args = {"owner": SMALL, "repo": str(GitHub().listed(SMALL)[0]["name"])}  # noqa: RUF012 - as Contract declares it
    other_403 = (403, FORBIDDEN)
    shape = ({"id": 1, "name": "x", "owner": {"login": SECRET}, "pushed_at": SECRET}, "at `$.pushed_at`")


def refresh(work: Work, org: str) -> str:
    return work(github.new_worker, "github.RefreshOrg", {"org": org}).status


def read(work: Work, repo: str, owner: str = SMALL) -> Done:
    return work(github.new_worker, "github.RefreshRepo", {"owner": owner, "repo": repo})


def page(*repos: tuple[int, str], next: str = "", etag: str = "") -> Reply:
    body = [
        {"id": id, "name": name, "owner": {"login": "one"}, "pushed_at": "2020-01-01T00:00:00Z"} for id, name in repos
    ]
    headers = {"Link": f'<{next}>; rel="next", <{next}>; rel="last"'} if next else {}
    return Reply(200, body, headers | ({"ETag": etag} if etag else {}))


def org(**fields: Any) -> Reply:
    return Reply(200, {"login": "one", **fields})


@pytest.mark.parametrize(
    ("status", "rest"), [("ok", 1.0), ("err: HTTP 502", 10.0), ("err: rate limited, retry after 5s", 60.0)]
)
def test_the_throttle_lets_60_jobs_begin_in_a_minute_and_backs_off(status: str, rest: float) -> None:
    assert github.throttle(status, None, 0.0) == rest


def test_an_organisation_s_repositories_are_written_and_the_stale_ones_read_next(work: Work) -> None:
    work.rows.execute("INSERT INTO companies (name, domain, github_org) VALUES ('?', 'x.example', %s)", LARGE.upper())
    assert refresh(work, LARGE) == ok(LARGE)
    [(count, company, owner)] = work.rows.execute("SELECT count(*), max(company_id), max(owner) FROM repos")
    assert (count, company, owner) == (COUNTS[LARGE], 1, LARGE)
    assert [job[:2] for job in work.enqueued()] == [("github", "github.RefreshRepo")] * STALE[LARGE]
    assert {job[2]["repo"] for job in work.enqueued()} == {entry["name"] for entry in GitHub().recent(LARGE)}
    assert work.rows.execute("SELECT description, website FROM companies")[0][1].startswith("https://")


def test_each_request_names_what_github_asks_for(work: Work, vendor: Vendor) -> None:
    assert refresh(work, LARGE) == ok(LARGE)
    for request in vendor.requests:
        assert request.headers["user-agent"] == "paceline"
        assert request.headers["accept"] == "application/vnd.github+json"
        assert request.headers["x-github-api-version"] == "2022-11-28"
    assert [request.query.get("page") for request in vendor.requests] == [None, None, "2"]
    assert vendor.requests[1].query["per_page"] == "100"
    assert vendor.requests[1].query["type"] == "public"


def test_what_has_not_changed_costs_nothing_and_is_known_all_the_same(work: Work, vendor: Vendor) -> None:
    """A 304 has neither a body nor the way to the next page; rows that were lost meanwhile are written again."""
    assert isinstance(vendor, GitHub)
    assert refresh(work, LARGE) == ok(LARGE)
    left = vendor.remaining
    work.rows.execute("TRUNCATE repos")
    work.rows.execute("INSERT INTO companies (name, domain, github_org) VALUES ('?', 'x.example', %s)", LARGE)
    assert refresh(work, LARGE) == ok(LARGE, stale=0)  # they wait already
    assert vendor.remaining == left
    assert vendor.count == 6
    assert all("if-none-match" in request.headers for request in list(vendor.requests)[3:])
    assert work.rows.execute("SELECT count(*), max(company_id) FROM repos") == [(COUNTS[LARGE], 1)]


def test_one_page_of_many_may_have_changed(work: Work, vendor: Vendor) -> None:
    vendor.tell(org())
    vendor.tell(page((1, "a"), next="/github/orgs/one/second", etag='"1"'))  # a relative link, too
    vendor.tell(page((2, "b"), etag='"2"'))
    assert refresh(work, "one") == "ok: 2 repositories, 0 stale"
    vendor.tell(org())
    vendor.tell(Reply(304))
    vendor.tell(page((2, "b, renamed"), (3, "c"), etag='"3"'))
    assert refresh(work, "one") == "ok: 3 repositories, 0 stale"
    assert [request.headers.get("if-none-match") for request in list(vendor.requests)[3:]] == [None, '"1"', '"2"']
    assert work.rows.execute("SELECT id, name FROM repos ORDER BY id") == [(1, "a"), (2, "b, renamed"), (3, "c")]


def test_the_kept_way_to_the_next_page_names_no_host(work: Work, vendor: Vendor) -> None:
    """It may be another one at the next start."""
    assert refresh(work, LARGE) == ok(LARGE)
    [(base,)] = {(request.base,) for request in vendor.requests}
    kept = work.rows.execute("SELECT key, value::text, etag FROM cache ORDER BY key")
    assert len(kept) == 3
    assert base not in repr(kept)


def test_a_kept_answer_of_another_shape_is_asked_for_anew(work: Work, vendor: Vendor) -> None:
    assert refresh(work, SMALL) == ok(SMALL)
    work.rows.execute("""UPDATE cache SET value = '{"value": [{"id": "?"}]}'""")
    assert refresh(work, SMALL) == ok(SMALL, stale=0)
    assert not any("if-none-match" in request.headers for request in vendor.requests)


def test_a_304_that_nobody_asked_for_is_an_err(work: Work, vendor: Vendor) -> None:
    vendor.tell(Reply(304))
    assert refresh(work, SMALL) == "err: HTTP 304"


def test_a_link_to_another_host_is_not_followed(work: Work, vendor: Vendor) -> None:
    vendor.tell(org())
    vendor.tell(page((1, "a"), next="https://planted.example/orgs/one/repos?page=2"))
    assert refresh(work, "one") == "err: github: the answer leads to another place"
    assert work.rows.execute("SELECT id FROM repos") == [(1,)]  # what was read stays


def test_a_page_and_its_jobs_are_written_in_one_transaction(work: Work) -> None:
    """The second of its jobs cannot be enqueued: then nothing of the page is there."""
    [_, second, *_] = [str(entry["name"]) for entry in GitHub().recent(SMALL)]
    work.rows.execute(
        f"ALTER TABLE jobs ADD CONSTRAINT no_second CHECK (name <> 'github.RefreshRepo' OR args->>'repo' <> '{second}')"
    )
    try:
        assert refresh(work, SMALL).startswith("err: ")
    finally:
        work.rows.execute("ALTER TABLE jobs DROP CONSTRAINT no_second")
    assert work.rows.execute("SELECT 1 FROM repos") == []
    assert work.enqueued() == []
    assert refresh(work, SMALL) == ok(SMALL)  # though all pages are 304s now


def test_a_repository_is_stale_until_it_was_read_by_itself_after_its_last_push(work: Work) -> None:
    assert refresh(work, SMALL) == ok(SMALL)
    first, *others = [args["repo"] for _, _, args in work.enqueued()]
    work.rows.execute("DELETE FROM jobs")
    assert read(work, first).status == "ok"
    assert refresh(work, SMALL) == ok(SMALL, stale=STALE[SMALL] - 1)
    assert [args["repo"] for _, _, args in work.enqueued()] == others
    work.rows.execute("DELETE FROM jobs")
    work.rows.execute("UPDATE repos SET refreshed_at = pushed_at - interval '1 hour' WHERE refreshed_at IS NOT NULL")
    assert refresh(work, SMALL) == ok(SMALL)


def test_a_repository_read_by_itself_tells_more_and_the_list_does_not_undo_it(work: Work) -> None:
    [name] = [str(entry["name"]) for entry in GitHub().recent(SMALL)][:1]
    assert read(work, name).status == "ok"
    before = work.rows.execute("SELECT subscribers, refreshed_at, stars, language FROM repos")
    assert before[0][0] > 0
    assert refresh(work, SMALL).startswith("ok")
    assert work.rows.execute("SELECT subscribers, refreshed_at, stars, language FROM repos WHERE name = %s", name) == (
        before
    )


def test_a_renamed_repository_is_followed_and_stays_the_same_row(work: Work, vendor: Vendor) -> None:
    name = str(GitHub().listed(SMALL)[0]["name"])
    for _ in range(2):
        assert read(work, f"old-{name}").status == "ok"
    assert work.rows.execute("SELECT owner, name FROM repos") == [(SMALL, name)]
    assert [request.path.split("/")[1] for request in vendor.requests] == ["repos", "repositories"] * 2


@pytest.mark.parametrize("status", [301, 302, 307])
def test_all_three_redirects_are_followed_and_a_ring_of_them_is_an_err(status: int, work: Work, vendor: Vendor) -> None:
    name = str(GitHub().listed(SMALL)[0]["name"])
    vendor.tell(Reply(status, headers={"Location": f"/github/repos/{SMALL}/{name}"}))
    assert read(work, "moved").status == "ok"
    vendor.tell(Reply(status, headers={"Location": f"/github/repos/{SMALL}/x"}), times=4)
    assert read(work, "ring").status == f"err: HTTP {status}"
    vendor.tell(Reply(status, headers={"Location": f"https://planted.example/repos/{SMALL}/{name}"}))
    assert read(work, "away").status == "err: github: the answer leads to another place"


def test_what_github_does_not_know_or_does_not_show_is_a_fail(work: Work, vendor: Vendor) -> None:
    assert refresh(work, "no/body") == "fail: no such organisation"
    assert vendor.requests[0].path == "/orgs/no%2Fbody"
    assert read(work, "nothing").status == "fail: no such repository"
    assert work.rows.execute("SELECT 1 FROM cache") == []


def limited(status: int, message: str = "", **headers: str) -> Reply:
    return Reply(status, {"message": message}, {key.replace("_", "-"): value for key, value in headers.items()})


SECONDARY = "You have exceeded a secondary rate limit. Please wait."


@pytest.mark.parametrize(
    ("answer", "rest"),
    [
        (limited(403, SECONDARY, retry_after="3412"), 3412),
        (limited(429, SECONDARY, retry_after="3412"), 3412),
        (limited(403, "API rate limit exceeded", x_ratelimit_remaining="0", x_ratelimit_reset="RESET"), 3412),
        (limited(429, "API rate limit exceeded", x_ratelimit_remaining="0", x_ratelimit_reset="RESET"), 3412),
        (limited(403, x_ratelimit_remaining="0", x_ratelimit_reset="RESET", retry_after="500"), 500),
        (limited(403, x_ratelimit_remaining="0", x_ratelimit_reset="?"), 60),
        (limited(403, SECONDARY, x_ratelimit_remaining="4000", x_ratelimit_reset="RESET"), 60),
        (limited(429), 60),
    ],
)
def test_a_403_or_429_that_is_a_rate_limit_rests_the_queue_as_long_as_it_says(
    answer: Reply, rest: float, work: Work, vendor: Vendor
) -> None:
    now = time.time()
    given = {key: value.replace("RESET", str(round(now + 3412))) for key, value in answer.headers.items()}
    vendor.tell(Reply(answer.status, answer.body, given))
    done = work(github.new_worker, "github.RefreshOrg", {"org": SMALL}, job_timeout=30)
    assert done.status.startswith("err: rate limited, retry after ")
    assert (done.rest.reason, done.rest.paused) == ("rate limited", False)
    assert abs(done.rest.seconds - rest) < 5 + time.time() - now
    assert vendor.count == 1


def test_a_primary_limit_that_is_over_by_the_clock_here_is_waited_for(work: Work, vendor: Vendor) -> None:
    """The clocks of two hosts differ: a second is the least."""
    vendor.tell(limited(403, x_ratelimit_remaining="0", x_ratelimit_reset=str(round(time.time()) - 30)))
    assert refresh(work, SMALL) == ok(SMALL)
    assert vendor.count == 3


def test_a_used_up_hour_is_the_primary_limit(work: Work, vendor: Vendor) -> None:
    assert isinstance(vendor, GitHub)
    assert refresh(work, LARGE) == ok(LARGE)
    vendor.remaining = 0
    done = work(github.new_worker, "github.RefreshOrg", {"org": SMALL}, job_timeout=0.9)
    assert done.status.startswith("err: rate limited"), done.status
    assert 0 < done.rest.seconds <= 3600


@pytest.mark.parametrize(
    "message",
    [
        "Resource not accessible by integration",
        "Resource protected by organization SAML enforcement. You must grant your token access",
    ],
)
def test_an_organisation_that_keeps_the_token_out_pauses_nothing(message: str, work: Work, vendor: Vendor) -> None:
    vendor.tell(Reply(403, {"message": message}, {"x-ratelimit-remaining": "4999"}))
    done = work(github.new_worker, "github.RefreshOrg", {"org": SMALL})
    assert (done.status, done.rest.reason, done.rest.paused) == (FORBIDDEN, "throttle", False)
