"""The queue `anthropic`: what it sends, pays for once, writes and posts, and how it takes each bad answer."""

from functools import partial
from typing import Any

import pytest

from deploy.sandbox.anthropic import error, message
from deploy.sandbox.server import Reply, Vendor
from queues import anthropic
from supervisor.child.execution import PAUSE, Rest
from tests.queues.harness import SECRET, Contract, Done, Work
from tests.support.rows import Rows

vendor_name = "anthropic"
NAME = "anthropic.SummarizeCompany"
DAY = 86_400
COMPANY = (
    "INSERT INTO companies (name, domain, industry, employees)"
    " VALUES ('Stripe', 'stripe.com', 'payments', 8000) RETURNING id"
)


class TestSummarizeCompany(Contract):
    vendor_name = "anthropic"
    new_worker = staticmethod(anthropic.new_worker)
    name, args = NAME, {"company_id": 1}
    refused, broken = "err: HTTP 401: authentication_error", "err: HTTP 500: api_error"
    shape = ({**message("m"), "content": [{"type": "text", "text": [SECRET]}]}, "at `$.content[0].text`")

    def prepare(self, rows: Rows) -> None:
        rows.execute(COMPANY)


@pytest.fixture
def company(rows: Rows) -> int:
    [(id,)] = rows.execute(COMPANY)
    return int(id)


@pytest.fixture
def summarize(work: Work, company: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    for channel in ("SLACK_CHANNEL", "DISCORD_CHANNEL"):
        monkeypatch.delenv(channel, raising=False)
    return partial(work, anthropic.new_worker, NAME, {"company_id": company})


@pytest.mark.parametrize(
    ("status", "rest"),
    [("ok", 2.0), ("err: HTTP 504: timeout_error", 30.0), ("err: rate limited, retry after 9s", 60.0)],
)
def test_the_throttle_lets_30_jobs_begin_in_a_minute_and_backs_off(status: str, rest: float) -> None:
    assert anthropic.throttle(status, None, 0.0) == rest


def test_a_summary_is_written_from_what_is_known(summarize: Any, work: Work, vendor: Vendor) -> None:
    work.rows.execute(
        "INSERT INTO repos (id, company_id, owner, name, stars, archived)"
        " SELECT n, 1, 'stripe', 'repo-' || n, n, false FROM generate_series(1, 9) AS n"
    )
    assert summarize().status == "ok"
    [request] = vendor.requests
    assert (request.method, request.path, request.headers["anthropic-version"]) == (
        "POST",
        "/v1/messages",
        "2023-06-01",
    )
    asked = request.json()
    assert (asked["model"], asked["messages"][0]["role"]) == ("claude-sandbox", "user")
    for known in ("Stripe", "payments", "8000", "repo-9", "repo-5"):
        assert known in asked["messages"][0]["content"]
    assert "repo-4" not in asked["messages"][0]["content"]
    [(id, model, text)] = work.rows.execute("SELECT company_id, model, text FROM summaries")
    assert (id, model) == (1, "claude-sandbox")
    assert text.startswith("Stripe works in payments and employs about 8000 people. Its most starred repository is rep")


def test_text_comes_from_all_text_blocks_and_from_no_other(summarize: Any, work: Work, vendor: Vendor) -> None:
    body = message("m", "One. ", "Two. ")
    body["content"].insert(0, {"type": "thinking", "thinking": "hm", "signature": "x"})
    vendor.tell(Reply(200, body))
    assert summarize().status == "ok"
    assert work.rows.execute("SELECT text FROM summaries") == [("One. Two.",)]


def test_it_is_posted_where_a_channel_is_configured_and_nowhere_else(
    summarize: Any, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISCORD_CHANNEL", " ")  # none for that queue either
    assert summarize().status == "ok"
    assert work.enqueued() == []
    for channel, posted in (("SLACK", ["slack"]), ("DISCORD", ["slack", "discord"])):
        monkeypatch.setenv(f"{channel}_CHANNEL", "c1")
        work.rows.execute("DELETE FROM jobs")
        assert summarize().status == "ok"
        assert [(queue, name) for queue, name, _ in work.enqueued()] == [(to, f"{to}.PostMessage") for to in posted]
    [(text,)] = work.rows.execute("SELECT DISTINCT args->>'text' FROM jobs WHERE queue IN ('slack', 'discord')")
    assert text.startswith("Stripe: Stripe works in payments")


def test_the_summary_and_its_posts_are_one_transaction(
    summarize: Any, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second post cannot be enqueued."""
    monkeypatch.setenv("SLACK_CHANNEL", "c1")
    monkeypatch.setenv("DISCORD_CHANNEL", "c1")
    work.rows.execute("ALTER TABLE jobs ADD CONSTRAINT no_discord CHECK (queue <> 'discord')")
    try:
        assert summarize().status.startswith("err: ")
    finally:
        work.rows.execute("ALTER TABLE jobs DROP CONSTRAINT no_discord")
    assert work.rows.execute("SELECT 1 FROM summaries") == []
    assert work.enqueued() == []


@pytest.mark.parametrize("status", ["ok", "ok: 3 sentences"])
def test_the_same_work_is_not_paid_for_twice_within_the_window(
    status: str, summarize: Any, work: Work, vendor: Vendor
) -> None:
    work.rows.insert("anthropic", NAME, {"company_id": 1}, status=status, age=6.9 * DAY)
    assert summarize().status == "skip: summarised within 7 days"
    assert vendor.count == 0
    assert work.rows.execute("SELECT 1 FROM summaries") == []


@pytest.mark.parametrize(
    ("queue", "name", "args", "status", "days"),
    [
        ("anthropic", NAME, {"company_id": 1}, "ok", 7.1),
        ("anthropic", NAME, {"company_id": 2}, "ok", 1),
        ("anthropic", "anthropic.Other", {"company_id": 1}, "ok", 1),
        ("other", NAME, {"company_id": 1}, "ok", 1),
        *[
            ("anthropic", NAME, {"company_id": 1}, status, 1)
            for status in ("fail: no text", "skip: summarised within 7 days", "err: HTTP 500: api_error")
        ],
    ],
)
def test_other_work_and_work_without_a_result_and_work_of_long_ago_are_no_reason_to_skip(
    queue: str, name: str, args: dict[str, int], status: str, days: float, summarize: Any, work: Work
) -> None:
    work.rows.insert(queue, name, args, status=status, age=days * DAY)
    assert summarize().status == "ok"


@pytest.mark.parametrize("days", ["7", "0.5"])
def test_a_retention_that_ends_before_the_window_is_refused_at_boot(
    days: str, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBS_RETENTION_DAYS", days)
    with pytest.raises(ValueError, match=f"^JOBS_RETENTION_DAYS={days}: must be more than 7, .*") as raised:
        anthropic.new_worker(work.db)
    assert "\n" not in str(raised.value)
    monkeypatch.setenv("JOBS_RETENTION_DAYS", "8")
    anthropic.new_worker(work.db)


def test_without_a_model_nothing_is_asked_and_the_queue_pauses(
    summarize: Any, vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is built in: names of models age."""
    monkeypatch.setenv("ANTHROPIC_MODEL", " ")
    done: Done = summarize()
    assert (done.status, done.rest) == (
        "err: set ANTHROPIC_MODEL",
        Rest(PAUSE, "set ANTHROPIC_MODEL", paused=True),
    )
    assert vendor.count == 0


def test_a_model_that_anthropic_does_not_know_is_an_err_that_says_so(
    summarize: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_MODEL", "claude-of-old")
    assert summarize().status == "err: HTTP 404: not_found_error"


def test_a_company_that_is_not_there_is_a_skip(work: Work, vendor: Vendor) -> None:
    assert work(anthropic.new_worker, NAME, {"company_id": 77}).status == "skip: no such company"
    assert vendor.count == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (message("m"), "fail: no text"),
        (message("m", " \n"), "fail: no text"),
        (message("m", "Half a sen", stop_reason="max_tokens"), "fail: no end within 600 tokens"),
        (message("m", "I cannot.", stop_reason="refusal"), "fail: the model refused"),
        (message("m", stop_reason="refusal"), "fail: the model refused"),
        (message("m", "?", stop_reason=SECRET), "fail: stopped for a reason that is none of ours"),
        ({**message("m", "?"), "stop_reason": None}, "fail: stopped for a reason that is none of ours"),
    ],
)
def test_an_answer_that_is_no_summary_is_a_fail_and_is_neither_written_nor_posted(
    body: dict[str, Any], status: str, summarize: Any, work: Work, vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_CHANNEL", "c1")
    vendor.tell(Reply(200, body))
    assert summarize().status == status
    assert vendor.count == 1
    assert work.rows.execute("SELECT 1 FROM summaries") == []
    assert work.enqueued() == []


CAP = "enforced_spend_limit_reached"


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (error(429, SECRET, error_code=CAP), CAP),
        (error(400, f"You have reached your specified API usage limits. {SECRET}"), "usage_limit_reached"),
        (error(400, "You have reached your specified workspace API usage limits."), "workspace_usage_limit_reached"),
        (error(400, "Your credit balance is too low to access the API."), "credit_balance_too_low"),
        (error(402, SECRET), "billing_error"),
    ],
)
def test_a_spent_budget_pauses_the_queue_like_a_refused_token(
    answer: Reply, detail: str, summarize: Any, vendor: Vendor
) -> None:
    vendor.tell(answer)
    done: Done = summarize()
    assert (done.status, done.rest) == (f"err: HTTP 401: {detail}", Rest(PAUSE, f"HTTP 401: {detail}", paused=True))
    assert vendor.count == 1


def test_another_400_pauses_nothing(summarize: Any, vendor: Vendor) -> None:
    vendor.tell(error(400, SECRET))
    done: Done = summarize()
    assert (done.status, done.rest.paused) == ("err: HTTP 400: invalid_request_error", False)


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (error(429, "no wait is named"), 60),
        (error(529, "Overloaded"), 60),
        (error(529, "Overloaded", {"retry-after": "300"}), 300),
    ],
)
def test_a_429_and_an_overload_rest_the_queue_when_they_do_not_fit_into_the_job(
    answer: Reply, seconds: int, summarize: Any, vendor: Vendor
) -> None:
    vendor.tell(answer)
    done: Done = summarize(job_timeout=30)
    assert (done.status, done.rest) == (
        f"err: rate limited, retry after {seconds}s",
        Rest(seconds, "rate limited"),
    )
    assert vendor.count == 1


def test_a_short_overload_is_waited_for(summarize: Any, vendor: Vendor) -> None:
    vendor.tell(error(529, "Overloaded", {"retry-after": "0.1"}))
    assert summarize().status == "ok"
    assert vendor.count == 2


def test_a_time_out_of_theirs_may_have_been_paid_for_and_is_not_asked_again(summarize: Any, vendor: Vendor) -> None:
    vendor.tell(504)
    assert summarize().status == "err: HTTP 504: timeout_error"
    assert vendor.count == 1
