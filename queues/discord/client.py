"""Discord's API, version 10: create a message.

https://docs.discord.com/developers/resources/message#create-message ,
https://docs.discord.com/developers/topics/rate-limits and https://docs.discord.com/developers/reference . Not verified:
the statuses that come with the codes below, and how the 2,000 characters of a message are counted.
"""

import os
import time
from contextlib import suppress
from urllib.parse import quote

import msgspec

from queues.http import Answer, Client, NoToken
from supervisor import Context, RateLimited

# About the channel or the text, so that the same message is refused again, with a status of 400, 403 or 404.
_NO = {
    10003: "unknown channel",
    50001: "missing access",
    50006: "empty message",
    50008: "no channel for text",
    50013: "missing permissions",
    50035: "invalid form body",
}


class _Refused(msgspec.Struct):
    code: int


class _Limited(msgspec.Struct):
    retry_after: float  # seconds


class _Message(msgspec.Struct):
    id: str


class DiscordClient(Client):
    """DISCORD_CHANNEL is the id of the channel for messages that name none."""

    vendor = "discord"
    default_url = "https://discord.com/api/v10"

    def __init__(self) -> None:
        super().__init__()
        self.channel = os.environ.get("DISCORD_CHANNEL", "").strip()
        self._free_at: dict[str, float] = {}  # by channel, on monotonic(): where its limit is used up

    def headers(self) -> dict[str, str]:
        # Of this form, or it is blocked. The page is to be that of whoever runs the bot.
        return {"Authorization": f"Bot {self.token}", "User-Agent": "DiscordBot (https://example.org/paceline, 1)"}

    def refusal(self, answer: Answer) -> Exception | None:
        if answer.status == 429:
            with suppress(ValueError):  # of Cloudflare's, which is HTML
                return RateLimited(answer.read(_Limited).retry_after)
        return None if _no(answer) else super().refusal(answer)

    def create_message(self, ctx: Context, channel: str | None, text: str, nonce: str) -> str:
        """Post it, mentioning nobody. Empty, or why it is refused where that is no fault.

        One that has no answer is sent once more: for some minutes Discord takes a nonce once, and answers with the
        first message.
        """
        if not (channel := channel or self.channel) and self.token:
            raise NoToken("DISCORD_CHANNEL")
        self._wait(ctx, channel)
        body = {"content": text, "nonce": nonce, "enforce_nonce": True, "allowed_mentions": {"parse": []}}
        path = f"/channels/{quote(channel, safe='')}/messages"
        try:
            answer = self.call(ctx, "POST", path, body=body)
        except (TimeoutError, ConnectionError):
            if ctx.remaining() < 1:
                raise
            answer = self.call(ctx, "POST", path, body=body)
        if answer.headers.get("x-ratelimit-remaining") == "0":
            with suppress(ValueError):
                self._free_at[channel] = time.monotonic() + float(answer.headers.get("x-ratelimit-reset-after", ""))
        if no := _no(answer):
            return no
        answer.read(_Message)
        return ""

    def _wait(self, ctx: Context, channel: str) -> None:
        """Until the channel's limit allows a message. RateLimited where the job's time is too short for that."""
        wait = self._free_at.get(channel, 0.0) - time.monotonic()
        if wait > ctx.remaining() - 1:
            raise RateLimited(wait)
        if wait > 0:
            time.sleep(wait)
        self._free_at.pop(channel, None)


def _no(answer: Answer) -> str:
    """`missing access (50001)`; empty for any other answer."""
    if answer.status in (400, 403, 404):
        with suppress(ValueError):
            code = answer.read(_Refused).code
            return f"{_NO[code]} ({code})" if code in _NO else ""
    return ""
