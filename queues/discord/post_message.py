"""discord.PostMessage: a text in a channel. Whoever wrote it can mention nobody."""

import msgspec

from queues.discord.client import DiscordClient
from supervisor import Context, fail

LONGEST = 2_000  # UTF-16 units, of which a character has one or two: enough however Discord counts


class PostMessageArgs(msgspec.Struct):
    text: str
    channel: str | None = None  # an id, all digits; else DISCORD_CHANNEL


def post_message(ctx: Context, args: PostMessageArgs, *, client: DiscordClient) -> str:
    refused = client.create_message(ctx, args.channel, cut(args.text), nonce=str(ctx.job.id))
    return fail(refused) if refused else "ok"


def cut(text: str) -> str:
    units = text.encode("utf-16-le")
    if len(units) <= 2 * LONGEST:
        return text
    return units[: 2 * LONGEST - 2].decode("utf-16-le", "ignore") + "…"
