"""The queue `discord`: what it posts, its nonce, the rate limit of a channel, and what each refusal means."""

import time
from itertools import pairwise

import pytest

from deploy.sandbox.discord import Discord
from deploy.sandbox.server import TOKEN, Reply, Sandbox, Vendor
from queues import discord
from supervisor import Poller
from supervisor.child.execution import PAUSE, Rest
from tests.queues.harness import SECRET, Contract, Done, Work
from tests.queues.test_standins import ask

vendor_name = "discord"


class TestPostMessage(Contract):
    vendor_name = "discord"
    new_worker = staticmethod(discord.new_worker)
    name, args = "discord.PostMessage", {"text": "hello"}
    other_403 = (403, "fail: missing access (50001)")
    shape = ({"id": [SECRET]}, "at `$.id`")

    def test_a_cut_answer_is_an_err(self) -> None:  # type: ignore[override]
        pytest.skip("it is asked for again, see below")


@pytest.fixture
def posts(vendor: Vendor) -> Discord:
    assert isinstance(vendor, Discord)
    return vendor


def post(work: Work, text: str = "hello", **args: str) -> Done:
    return work(discord.new_worker, "discord.PostMessage", {"text": text, **args})


def contents(posts: Discord) -> list[str]:
    return [message["content"] for message in posts.posted]


@pytest.mark.parametrize(
    ("status", "elapsed", "rest"),
    [
        ("ok", 0.0, 1.0),
        ("ok", 5.0, 0.0),
        ("fail: missing access (50001)", 0.25, 0.75),
        ("err: HTTP 502", 0.0, 10.0),
        ("err: rate limited, retry after 3s", 0.0, 60.0),
    ],
)
def test_the_throttle_lets_a_job_begin_each_second_and_backs_off(status: str, elapsed: float, rest: float) -> None:
    assert discord.throttle(status, None, elapsed) == pytest.approx(rest)


def test_a_message_goes_to_its_channel_or_else_to_the_one_of_the_environment(work: Work, posts: Discord) -> None:
    assert post(work, "one").status == "ok"
    assert post(work, "two", channel="1100000000000000002").status == "ok"
    assert [(message["channel_id"], message["content"]) for message in posts.posted] == [
        ("1100000000000000001", "one"),
        ("1100000000000000002", "two"),
    ]


def test_without_a_channel_nothing_is_asked_and_the_queue_pauses(
    work: Work, posts: Discord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISCORD_CHANNEL")
    done = post(work)
    assert (done.status, done.rest) == ("err: set DISCORD_CHANNEL", Rest(PAUSE, "set DISCORD_CHANNEL", paused=True))
    assert posts.count == 0


def test_a_text_mentions_nobody_and_its_nonce_is_the_jobs_id(work: Work, posts: Discord) -> None:
    done = post(work, "@everyone <@1100000000000000002>")
    [request] = posts.requests
    assert request.json() == {
        "content": "@everyone <@1100000000000000002>",
        "nonce": str(done.id),
        "enforce_nonce": True,
        "allowed_mentions": {"parse": []},
    }


@pytest.mark.parametrize("character", ["x", "é", "🚴"])
def test_a_long_text_is_cut_with_a_mark_and_no_character_is_cut(character: str, work: Work, posts: Discord) -> None:
    assert post(work, character * 5_000).status == "ok"
    [content] = contents(posts)
    assert content == character * (len(content) - 1) + "…"
    assert len(content.encode("utf-16-le")) in (3_998, 4_000)


def test_equal_messages_are_not_one(work: Work, posts: Discord) -> None:
    assert discord.new_worker(work.db).dedupe == frozenset()
    assert [post(work).status, post(work).status] == ["ok", "ok"]
    assert contents(posts) == ["hello", "hello"]


@pytest.mark.parametrize("manner", ["cut", "stall"])
def test_a_message_without_an_answer_is_sent_again_and_posted_once(
    manner: str, work: Work, posts: Discord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in takes it, and its answer is lost."""
    monkeypatch.setenv("DISCORD_TIMEOUT", "0.4")
    posts.tell(manner)  # type: ignore[arg-type]
    assert post(work).status == "ok"
    assert (posts.count, contents(posts)) == (2, ["hello"])


def test_a_message_without_an_answer_is_sent_again_once(work: Work, posts: Discord) -> None:
    posts.tell("cut", times=9)
    done = post(work)
    assert (done.status.startswith("err: discord: broken off"), posts.count) == (True, 2)


def test_the_limit_of_a_channel_is_waited_for_before_it_is_passed(work: Work, posts: Discord) -> None:
    """By one process, whose client remembers the headers: no answer is a 429, which would count towards a ban."""
    posts.seconds = 0.6
    worker = discord.new_worker(work.db)
    for n in range(12):
        work.rows.insert("discord", "discord.PostMessage", {"text": str(n)})
    poller = Poller(worker, work.db)
    ends = []
    for _ in range(12):
        assert poller.work_once() == "ok"
        ends.append(time.monotonic())
    assert posts.count == 12
    assert contents(posts) == [str(n) for n in range(12)]
    waits = [number for number, (one, other) in enumerate(pairwise(ends), 1) if other - one > 0.2]
    assert waits == [5, 10]


def test_a_limit_that_a_job_has_no_time_for_rests_the_queue(work: Work, posts: Discord) -> None:
    posts.seconds = 60.0
    worker = discord.new_worker(work.db)
    statuses = [work(lambda db: worker, "discord.PostMessage", {"text": "x"}, job_timeout=9) for _ in range(6)]
    assert [done.status for done in statuses[:5]] == ["ok"] * 5
    last = statuses[5]
    assert last.status.startswith("err: rate limited, retry after ")
    assert 50 < last.rest.seconds <= 60
    assert posts.count == 5


def test_another_channel_has_a_limit_of_its_own(work: Work, posts: Discord) -> None:
    posts.seconds = 60.0
    worker = discord.new_worker(work.db)
    for channel in ("1100000000000000001", "1100000000000000002"):
        for _ in range(5):
            done = work(lambda db: worker, "discord.PostMessage", {"text": "x", "channel": channel}, job_timeout=9)
            assert done.status == "ok"


def test_a_client_that_forgot_the_limit_waits_as_long_as_the_429_says(work: Work, posts: Discord) -> None:
    """As after a crash. The body's seconds count; the header's are whole ones."""
    posts.seconds = 0.6
    assert [post(work).status for _ in range(7)] == ["ok"] * 7
    assert len(posts.posted) == 7
    assert posts.count > 7
    posts.tell(429, retry_after=900.25)
    assert post(work).rest == Rest(900.25, "rate limited")


def test_a_429_that_is_no_json_is_a_rate_limit_too(work: Work, posts: Discord) -> None:
    posts.tell(Reply(429, b"<html>planted</html>", {"Retry-After": "900"}))
    done = post(work)
    assert (done.status, done.rest) == ("err: rate limited, retry after 900s", Rest(900, "rate limited"))


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Reply(403, {"code": 50013, "message": "planted"}), "fail: missing permissions (50013)"),
        (Reply(404, {"code": 10003, "message": "planted"}), "fail: unknown channel (10003)"),
        (Reply(404, {"code": 0, "message": "planted"}), "err: HTTP 404"),
        (Reply(400, {"code": 20009, "message": "planted"}), "err: HTTP 400"),
        (Reply(500, {"code": 50001, "message": "planted"}), "err: HTTP 500"),
    ],
)
def test_a_no_about_the_channel_or_the_text_is_a_fail_and_another_an_err(
    answer: Reply, status: str, work: Work, posts: Discord
) -> None:
    posts.tell(answer)
    done = post(work)
    assert (done.status, done.rest.paused, posts.count) == (status, False, 1)


def test_the_stand_in_refuses_what_discord_refuses(work: Work, sandbox: Sandbox) -> None:
    assert post(work, "hello", channel="general").status == "fail: invalid form body (50035)"
    assert post(work, " ").status == "fail: empty message (50006)"
    agent = {"User-Agent": "DiscordBot (https://example.org, 1)"}
    for method, path, headers, status in [
        ("POST", "messages", {"Authorization": f"Bot {TOKEN}"}, 403),
        ("POST", "messages", {"Authorization": f"Bot {TOKEN}", "User-Agent": "paceline"}, 403),
        ("POST", "messages", {"Authorization": f"Bearer {TOKEN}", **agent}, 401),
        ("POST", "messages", {"Authorization": f"Bot {TOKEN}", **agent}, 400),
        ("GET", "messages", {"Authorization": f"Bot {TOKEN}", **agent}, 405),
        ("POST", "message", {"Authorization": f"Bot {TOKEN}", **agent}, 404),
    ]:
        assert ask(sandbox, method, f"/discord/channels/1100000000000000001/{path}", headers, "{}")[0] == status


def test_a_403_of_another_code_pauses_the_queue(work: Work, posts: Discord) -> None:
    posts.tell(Reply(403, {"code": 40001, "message": "planted"}))
    assert post(work).rest == Rest(PAUSE, "HTTP 403", paused=True)


def test_the_address_names_the_version(monkeypatch: pytest.MonkeyPatch, posts: Discord) -> None:
    """Without one it is the deprecated sixth."""
    monkeypatch.delenv("DISCORD_URL")
    assert discord.DiscordClient().url == "https://discord.com/api/v10"
