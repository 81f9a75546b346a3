"""The queue `slack`: what it posts, and what each code of a refusal, which comes as a 200, means."""

import json

import pytest

from deploy.sandbox.server import TOKEN, Reply, Sandbox, Vendor
from deploy.sandbox.slack import Slack
from queues import slack
from supervisor.child.execution import PAUSE, Rest
from tests.queues.harness import SECRET, Contract, Done, Work
from tests.queues.test_standins import ask

vendor_name = "slack"


class TestPostMessage(Contract):
    vendor_name = "slack"
    new_worker = staticmethod(slack.new_worker)
    name, args = "slack.PostMessage", {"text": "hello"}
    refused = "err: HTTP 401: invalid_auth"
    shape = ({"ok": [SECRET]}, "at `$.ok`")


@pytest.fixture
def posts(vendor: Vendor) -> Slack:
    assert isinstance(vendor, Slack)
    return vendor


def post(work: Work, text: str = "hello", **args: str) -> Done:
    return work(slack.new_worker, "slack.PostMessage", {"text": text, **args})


@pytest.mark.parametrize(
    ("status", "elapsed", "rest"),
    [
        ("ok", 0.0, 1.0),
        ("ok", 0.8, 0.2),
        ("fail: is_archived", 0.0, 1.0),
        ("err: HTTP 503", 0.0, 10.0),
        ("err: message_limit_exceeded", 0.0, 60.0),
        ("err: rate limited, retry after 3s", 0.0, 60.0),
    ],
)
def test_the_throttle_lets_a_job_begin_each_second_and_backs_off(status: str, elapsed: float, rest: float) -> None:
    assert slack.throttle(status, None, elapsed) == pytest.approx(rest)


def test_a_message_goes_to_its_channel_or_else_to_the_one_of_the_environment(work: Work, posts: Slack) -> None:
    assert post(work, "one").status == "ok"
    assert post(work, "two", channel="C0OTHER0001").status == "ok"
    assert list(posts.posted) == [("C0SANDBOX01", "one"), ("C0OTHER0001", "two")]


def test_without_a_channel_nothing_is_asked_and_the_queue_pauses(
    work: Work, posts: Slack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLACK_CHANNEL")
    done = post(work)
    assert (done.status, done.rest) == ("err: set SLACK_CHANNEL", Rest(PAUSE, "set SLACK_CHANNEL", paused=True))
    assert posts.count == 0


def test_a_text_mentions_and_links_nobody(work: Work, posts: Slack) -> None:
    assert post(work, "<!channel> <@U1> & <https://evil.example|ours>").status == "ok"
    assert posts.posted[0][1] == "&lt;!channel&gt; &lt;@U1&gt; &amp; &lt;https://evil.example|ours&gt;"


def test_a_long_text_is_cut_with_a_mark_and_no_escape_is_cut(work: Work, posts: Slack) -> None:
    assert post(work, "<" * 50_000).status == "ok"
    assert posts.posted[0][1] == "&lt;" * 3_999 + "…"
    assert post(work, "é" * 4_000).status == "ok"
    assert posts.posted[1][1] == "é" * 4_000


def test_equal_messages_are_not_one(work: Work) -> None:
    assert slack.new_worker(work.db).dedupe == frozenset()


@pytest.mark.parametrize(
    "code", ["channel_not_found", "not_in_channel", "is_archived", "no_text", "restricted_action_read_only_channel"]
)
def test_a_no_about_the_channel_or_the_text_is_a_fail(code: str, work: Work, posts: Slack) -> None:
    posts.tell(Reply(200, {"ok": False, "error": code}))
    done = post(work)
    assert (done.status, done.error, done.rest.paused) == (f"fail: {code}", None, False)


def test_the_stand_in_refuses_what_slack_refuses(work: Work, sandbox: Sandbox) -> None:
    assert post(work, "hello", channel="#general").status == "fail: channel_not_found"
    assert post(work, " ").status == "fail: no_text"
    for given, code in [
        ({}, "not_authed"),
        ({"Authorization": TOKEN}, "not_authed"),
        ({"Authorization": "Bearer other"}, "invalid_auth"),
        ({"Authorization": f"Bearer {TOKEN}"}, "invalid_form_data"),
    ]:
        status, body = ask(sandbox, "POST", "/slack/chat.postMessage", given, "{}")
        assert (status, json.loads(body)["error"]) == (200, code)
    assert ask(sandbox, "GET", "/slack/chat.postMessage", {})[0] == 405


@pytest.mark.parametrize("code", ["not_authed", "token_revoked", "token_expired", "account_inactive", "missing_scope"])
def test_a_code_about_the_token_pauses_the_queue_like_a_401(code: str, work: Work, posts: Slack) -> None:
    posts.tell(Reply(200, {"ok": False, "error": code, "needed": SECRET}))
    done = post(work)
    assert (done.status, done.rest) == (f"err: HTTP 401: {code}", Rest(PAUSE, f"HTTP 401: {code}", paused=True))


@pytest.mark.parametrize("code", ["ratelimited", "rate_limited"])
def test_a_rate_limit_that_comes_as_a_200_is_one(code: str, work: Work, posts: Slack) -> None:
    posts.tell(Reply(200, {"ok": False, "error": code}, {"Retry-After": "0.3"}))
    assert post(work).status == "ok"
    posts.tell(Reply(200, {"ok": False, "error": code}, {"Retry-After": "900"}))
    done = post(work)
    assert (done.status, done.rest) == ("err: rate limited, retry after 900s", Rest(900, "rate limited"))
    assert len(posts.posted) == 1


@pytest.mark.parametrize("code", ["fatal_error", "internal_error"])
def test_what_may_have_been_posted_is_not_sent_again(code: str, work: Work, posts: Slack) -> None:
    posts.tell(Reply(200, {"ok": False, "error": code}))
    done = post(work)
    assert (done.status, posts.count) == (f"err: {code}: it may have been posted", 1)
    assert not done.rest.paused


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"ok": False, "error": "team_added_to_org"}, "err: team_added_to_org"),
        ({"ok": False, "error": "a code of planted words"}, "err: slack: not ok, and no code that says why"),
        ({"ok": False}, "err: slack: not ok, and no code that says why"),
    ],
)
def test_any_other_code_is_an_err(body: dict[str, object], status: str, work: Work, posts: Slack) -> None:
    posts.tell(Reply(200, body))
    done = post(work)
    assert (done.status, posts.count, done.rest.paused) == (status, 1, False)
