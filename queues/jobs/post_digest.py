"""jobs.PostDigest: tells Slack and Discord, each where its channel is configured, how the jobs of yesterday ended."""

from collections import Counter
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

from supervisor import DB, OUTCOME_SQL, Context, insert, skip

_HERE = Path(__file__).parent
_QUEUES = (_HERE / "queues_with_finished_rows.sql").read_bytes()
# In the file it looks like a function, so that the file is SQL.
_COUNT = (_HERE / "count_outcomes.sql").read_text().replace("outcome(status)", OUTCOME_SQL).encode()
_ORDER = ("ok", "fail", "skip", "err")


def post_digest(ctx: Context, args: dict[str, object], *, db: DB, channels: Collection[str]) -> str:
    if not channels:
        return skip("set SLACK_CHANNEL or DISCORD_CHANNEL")
    day = (ctx.job.created_at - timedelta(days=1)).date()
    with db.connection() as connection:  # one transaction: both messages or none
        connection.execute("SET LOCAL TimeZone TO 'UTC'")  # what a day is; and an older table's times have no zone
        counts = {}
        for (queue,) in connection.execute(_QUEUES).fetchall():
            rows = connection.execute(_COUNT, {"queue": queue, "day": day}).fetchall()
            counts[queue] = Counter(dict(rows))
        total = sum(counts.values(), Counter[str]())
        if not total:
            return skip(f"no job ended on {day}")
        lines = [f"Jobs of {day}: {_told(total)}"]
        lines += [f"{queue}: {_told(count)}" for queue, count in counts.items() if count]
        message = {"text": "\n".join(lines)}
        if "slack" in channels:
            insert(connection, "slack", "slack.PostMessage", message)
        if "discord" in channels:
            insert(connection, "discord", "discord.PostMessage", message)
    return f"ok: {total.total()} jobs of {day}"


def _told(count: Counter[str]) -> str:
    return ", ".join(f"{count[outcome]} {outcome}" for outcome in _ORDER if count[outcome])
