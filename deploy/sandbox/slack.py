"""Slack's stand-in. What it knows of the vendor is in queues/slack/client.py. Almost every refusal is a 200.

Not verified: the answers to another HTTP method, and to a body that is no JSON.
"""

import re
from collections import deque
from collections.abc import Mapping
from typing import ClassVar

from deploy.sandbox.server import TOKEN, Refused, Reply, Request, Vendor


class Slack(Vendor):
    name = "slack"
    settings: ClassVar[Mapping[str, str]] = {"SLACK_CHANNEL": "C0SANDBOX01"}

    def __init__(self) -> None:
        super().__init__()
        self.posted: deque[tuple[str, str]] = deque(maxlen=100)  # (channel, text)

    def reset(self) -> None:
        super().reset()
        self.posted.clear()

    def authorise(self, request: Request) -> None:
        given = request.headers.get("authorization", "")
        if not given.startswith("Bearer "):
            raise Refused(no("not_authed"))
        if given != f"Bearer {TOKEN}":
            raise Refused(no("invalid_auth", token=given))

    def refusal(self, status: int, retry_after: float) -> Reply:
        match status:
            case 401:
                return no("invalid_auth")
            case 403:
                return no("missing_scope", needed="chat:write", provided="identify")
            case 404:
                return no("unknown_method")
            case 429:
                return Reply(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": f"{retry_after:g}"})
        return Reply(status, b"")

    def post_message(self, request: Request) -> Reply:
        if not request.headers.get("content-type", "").startswith("application/json"):
            return no("invalid_form_data")
        given = request.json()
        if not isinstance(given, dict):
            return no("invalid_json")
        channel, text = given.get("channel"), given.get("text")
        if not (isinstance(channel, str) and re.fullmatch(r"[CDG][A-Z0-9]{8,}", channel)):
            return no("channel_not_found")
        if not (isinstance(text, str) and text.strip()):
            return no("no_text")
        self.posted.append((channel, text[:40_000]))
        ts = f"1503435956.{self.count:06}"
        return Reply(200, {"ok": True, "channel": channel, "ts": ts, "message": {"text": text, "type": "message"}})

    routes = (("POST", "/chat.postMessage", post_message),)


def no(code: str, **more: str) -> Reply:
    return Reply(200, {"ok": False, "error": code, **more})
