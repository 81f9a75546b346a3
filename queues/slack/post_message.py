"""slack.PostMessage: a text in a channel. The text is no markup: whoever wrote it can mention and link nobody."""

import msgspec

from queues.slack.client import SlackClient
from supervisor import Context, fail

# The page advises 4,000 characters, and cuts past 40,000: which no text of 4,000 reaches by being escaped.
LONGEST = 4_000


class PostMessageArgs(msgspec.Struct):
    text: str
    channel: str | None = None  # an id, C0123456789; else SLACK_CHANNEL


def post_message(ctx: Context, args: PostMessageArgs, *, client: SlackClient) -> str:
    refused = client.post_message(ctx, args.channel, plain(args.text))
    return fail(refused) if refused else "ok"


def plain(text: str) -> str:
    """`text` as Slack shows it unchanged: mentions and links need a `<`."""
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
