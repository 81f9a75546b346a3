"""Discord's stand-in: it takes a nonce once, and five messages in five seconds for each channel.

What it knows of the vendor is in queues/discord/client.py. Not verified: the statuses of refusals, and the numbers of
the limit, which the vendor may change at any time.
"""

import re
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar

from deploy.sandbox.server import TOKEN, Refused, Reply, Request, Vendor

MESSAGES, SECONDS = 5, 5.0


class Discord(Vendor):
    name = "discord"
    settings: ClassVar[Mapping[str, str]] = {"DISCORD_CHANNEL": "1100000000000000001"}

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        super().reset()
        self.seconds = SECONDS
        self.posted: deque[dict[str, Any]] = deque(maxlen=100)  # messages
        self._windows: dict[str, tuple[float, int]] = {}  # by channel: since when, and how many

    def authorise(self, request: Request) -> None:
        if not re.fullmatch(r"DiscordBot \(\S+, \S+\).*", request.headers.get("user-agent", "")):
            raise Refused(Reply(403, b"<html>error code: 1010</html>", {"Content-Type": "text/html"}))
        if request.headers.get("authorization") != f"Bot {TOKEN}":
            raise Refused(self.refusal(401, 0))

    def refusal(self, status: int, retry_after: float) -> Reply:
        match status:
            case 401:
                return Reply(401, {"message": "401: Unauthorized", "code": 0})
            case 403:
                return Reply(403, {"message": "Missing Access", "code": 50001})
            case 404:
                return Reply(404, {"message": "404: Not Found", "code": 0})
            case 429:
                body = {"message": "You are being rate limited.", "retry_after": retry_after, "global": False}
                headers = {"Retry-After": str(-int(-retry_after // 1)), "X-RateLimit-Scope": "user"}
                return Reply(429, body, headers)
        return Reply(status, {"message": f"{status}", "code": 0})

    def create_message(self, request: Request, channel: str) -> Reply:
        given = request.json()
        if not request.headers.get("content-type", "").startswith("application/json") or not isinstance(given, dict):
            return invalid("_", "not JSON")
        if not re.fullmatch(r"\d{17,20}", channel):
            return invalid("channel_id", "not a snowflake")
        content, nonce = given.get("content"), str(given.get("nonce", ""))
        if not isinstance(content, str) or not content.strip():
            return Reply(400, {"message": "Cannot send an empty message", "code": 50006})
        if len(content.encode("utf-16-le")) > 2 * 2_000:
            return invalid("content", "Must be 2000 or fewer in length.")
        if len(nonce) > 25:
            return invalid("nonce", "Must be 25 or fewer in length.")
        headers = self._counted(channel)
        if "Retry-After" in headers:
            reply = self.refusal(429, float(headers["X-RateLimit-Reset-After"]))
            return Reply(429, reply.body, {**headers, **reply.headers})
        first = next((message for message in self.posted if nonce and message["nonce"] == nonce), None)
        if first and given.get("enforce_nonce"):
            return Reply(200, first, headers)
        message = {"id": str(1200000000000000000 + self.count), "channel_id": channel, "content": content}
        message |= {"nonce": nonce, "allowed_mentions": given.get("allowed_mentions")}
        self.posted.append(message)
        return Reply(200, message, headers)

    def _counted(self, channel: str) -> dict[str, str]:
        """The headers of a rate limit after this request; with Retry-After where it is one too many."""
        now = time.monotonic()
        since, count = self._windows.get(channel, (now, 0))
        if now - since >= self.seconds:
            since, count = now, 0
        self._windows[channel] = since, min(count + 1, MESSAGES)
        after = since + self.seconds - now
        headers = {
            "X-RateLimit-Limit": str(MESSAGES),
            "X-RateLimit-Remaining": str(max(0, MESSAGES - count - 1)),
            "X-RateLimit-Reset": f"{time.time() + after:.3f}",
            "X-RateLimit-Reset-After": f"{after:.3f}",
            "X-RateLimit-Bucket": "sandbox",
        }
        return headers if count < MESSAGES else {**headers, "Retry-After": ""}

    routes = (("POST", r"/channels/(?P<channel>[^/]+)/messages", create_message),)


def invalid(field: str, why: str) -> Reply:
    errors = {field: {"_errors": [{"code": "INVALID", "message": why}]}}
    return Reply(400, {"message": "Invalid Form Body", "code": 50035, "errors": errors})
