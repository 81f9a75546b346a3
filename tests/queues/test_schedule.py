"""What the clock enqueues by itself: how often, and what the rota and the digest make of the tables."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

import queues
from queues import apollo, jobs
from supervisor.schedule import ticks
from tests.queues.harness import Work

TODAY = "date_trunc('day', now(), 'UTC')"


def test_each_entry_is_due_as_often_as_it_is_meant_to_be() -> None:
    day = datetime(2026, 11, 29, 23, 59, tzinfo=UTC)
    times = {entry.name: list(ticks(entry, day, 24 * 60)) for entry in queues.schedule}
    assert {name: len(minutes) for name, minutes in times.items()} == {
        "caches.Age": 96,
        "jobs.CleanUpQueues": 1,
        "jobs.PostDigest": 1,
        "pitchbook.IngestRecentDeals": 4,
        "apollo.EnqueueRefreshes": 1,
    }
    deals = times["pitchbook.IngestRecentDeals"]
    assert {later - one for one, later in pairwise(deals)} == {timedelta(hours=6)}


# --- the rota


def refresh(work: Work, **args: int) -> str:
    return work(apollo.new_worker, "apollo.EnqueueRefreshes", args).status


def company(work: Work, domain: str, enriched: str = "NULL") -> None:
    work.rows.execute(f"INSERT INTO companies (domain, name, enriched_at) VALUES (%s, %s, {enriched})", domain, domain)


def waiting(work: Work) -> list[str]:
    return [args["domain"] for _, name, args in work.enqueued() if name == "apollo.IngestCompany"]


def test_the_rota_enqueues_what_is_due_and_a_second_run_adds_nothing(work: Work) -> None:
    company(work, "fresh.example", "now() - interval '29 days'")
    company(work, "old.example", "now() - interval '31 days'")
    company(work, "older.example", "now() - interval '90 days'")
    company(work, "never.example")
    assert refresh(work) == "ok: 3 companies, 0 people"
    assert waiting(work) == ["never.example", "older.example", "old.example"]
    assert refresh(work) == "skip: nothing is due"
    assert len(waiting(work)) == 3


def test_the_rota_takes_no_more_than_it_may_the_longest_waiting_first(work: Work) -> None:
    for days in range(40, 50):
        company(work, f"c{days}.example", f"now() - interval '{days} days'")
    assert refresh(work, most=3) == "ok: 3 companies, 0 people"
    assert waiting(work) == ["c49.example", "c48.example", "c47.example"]


@pytest.mark.parametrize("status", ["fail: no match", "err: HTTP 422", "ok"])
def test_a_company_that_was_asked_about_this_week_is_left_for_the_next(status: str, work: Work) -> None:
    company(work, "nobody.example")
    company(work, "other.example")
    id = work.rows.insert("apollo", "apollo.IngestCompany", {"domain": "nobody.example"})
    for days, due in ((6, ["other.example"]), (8, ["nobody.example"])):
        work.rows.execute(
            "UPDATE jobs SET status = %s, finished_at = now() - make_interval(days => %s) WHERE id = %s",
            status,
            days,
            id,
        )
        assert refresh(work) == "ok: 1 companies, 0 people"
        assert waiting(work)[-1:] == due


def test_people_are_looked_up_anew_by_the_same_rota(work: Work) -> None:
    for name, days in (("fresh", 29), ("old", 31), ("older", 90)):
        work.rows.execute(
            "INSERT INTO people (email, refreshed_at) VALUES (%s, now() - make_interval(days => %s))", name, days
        )
    assert refresh(work) == "ok: 0 companies, 2 people"
    assert [args["email"] for _, name, args in work.enqueued() if name == "apollo.RefreshPerson"] == ["older", "old"]
    assert refresh(work) == "skip: nothing is due"
    work.rows.execute("UPDATE jobs SET status = 'fail: no match', finished_at = now() WHERE status = 'pending'")
    assert refresh(work) == "skip: nothing is due"


def test_a_job_without_a_domain_does_not_stop_the_rota(work: Work) -> None:
    """NULL in a NOT IN would."""
    company(work, "due.example")
    work.rows.execute(
        "INSERT INTO jobs (queue, name, status, finished_at) VALUES ('apollo', 'apollo.IngestCompany', 'err: x', now())"
    )
    assert refresh(work) == "ok: 1 companies, 0 people"


# --- the digest


def digest(work: Work) -> str:
    return work(jobs.new_worker, "jobs.PostDigest", {}).status


def finished(work: Work, queue: str, status: str, when: str) -> None:
    work.rows.execute(
        f"INSERT INTO jobs (queue, name, status, finished_at) VALUES (%s, 'x.Y', %s, {when})", queue, status
    )


def test_the_digest_counts_yesterdays_outcomes_and_tells_both(work: Work) -> None:
    for status in ("ok", "ok: 3 deals", "whatever", "failure", "fail: no", "skip: nothing", "err: HTTP 500"):
        finished(work, "apollo", status, f"{TODAY} - interval '1 day'")
    finished(work, "github", "ok", f"{TODAY} - interval '1 microsecond'")
    finished(work, "github", "err: today", TODAY)
    finished(work, "github", "err: the day before", f"{TODAY} - interval '1 day 1 microsecond'")
    finished(work, "pitchbook", "err: today", TODAY)
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date()
    assert digest(work) == f"ok: 8 jobs of {yesterday}"
    text = f"Jobs of {yesterday}: 5 ok, 1 fail, 1 skip, 1 err\napollo: 4 ok, 1 fail, 1 skip, 1 err\ngithub: 1 ok"
    assert work.enqueued() == [
        ("slack", "slack.PostMessage", {"text": text}),
        ("discord", "discord.PostMessage", {"text": text}),
    ]


def test_a_digest_goes_where_a_channel_is_configured(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(work, "apollo", "ok", f"{TODAY} - interval '1 day'")
    monkeypatch.delenv("SLACK_CHANNEL")
    assert digest(work).startswith("ok: 1 jobs of ")
    assert [queue for queue, *_ in work.enqueued()] == ["discord"]
    monkeypatch.delenv("DISCORD_CHANNEL")
    assert digest(work) == "skip: set SLACK_CHANNEL or DISCORD_CHANNEL"
    assert len(work.enqueued()) == 1


def test_a_day_without_jobs_has_no_digest(work: Work) -> None:
    finished(work, "apollo", "ok", TODAY)
    assert digest(work).startswith("skip: no job ended on ")
    assert work.enqueued() == []


def test_both_messages_are_enqueued_or_neither(work: Work) -> None:
    finished(work, "apollo", "ok", f"{TODAY} - interval '1 day'")
    work.rows.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON jobs FOR EACH ROW WHEN (NEW.queue = 'discord')"
        " EXECUTE FUNCTION refuse()"
    )
    try:
        assert digest(work).startswith("err: no")
        assert work.enqueued() == []
    finally:
        work.rows.execute("DROP FUNCTION refuse CASCADE")


def test_messages_are_never_deduped_and_what_asks_a_vendor_is() -> None:
    workers = [new_worker(None) for new_worker in queues.registry]  # type: ignore[arg-type]
    declared = Counter(name for worker in workers for name in worker.dedupe)
    assert not [name for name in declared if name.endswith("PostMessage")]
    asks = {"pitchbook.IngestRecentDeals", "pitchbook.IngestCompany", "apollo.IngestCompany", "apollo.RefreshPerson"}
    assert asks <= set(declared)
