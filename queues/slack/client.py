"""Slack's API: chat.postMessage.

https://docs.slack.dev/reference/methods/chat.postMessage (read in a repository's copy) and
https://docs.slack.dev/messaging/formatting-message-text . A refusal is a 200 with `ok` false and a code. The three
classes of codes below are ours, by what that page says of each. Not verified: the scheme `Bearer`, and the body of a
429.
"""

import os
import re

import msgspec

from queues.http import Answer, Client, NoToken
from supervisor import Context, RateLimited, TokenRefused

# About the channel or the text: the same message is refused again.
_NO = re.compile(
    "cannot_reply_to_message|channel_not_found|invalid_blocks|invalid_blocks_format|is_archived|messages_tab_disabled|"
    "msg_blocks_too_long|msg_too_long|no_text|not_in_channel|restricted_action.*|too_many_attachments"
)
# About the token: every message is refused.
_TOKEN_REFUSED = re.compile(
    "access_denied|accesslimited|account_inactive|ekm_access_denied|invalid_auth|missing_scope|no_permission|"
    "not_allowed_token_type|not_authed|org_login_required|team_access_not_granted|token_expired|token_revoked|"
    "two_factor_setup_required"
)
_RATE_LIMITED = frozenset({"ratelimited", "rate_limited"})
_PERHAPS_POSTED = frozenset({"fatal_error", "internal_error"})  # "some aspect of the operation" may have succeeded


class _Posted(msgspec.Struct):
    ok: bool


class SlackClient(Client):
    """SLACK_CHANNEL is the id of the channel for messages that name none."""

    vendor = "slack"
    default_url = "https://slack.com/api"

    def __init__(self) -> None:
        super().__init__()
        self.channel = os.environ.get("SLACK_CHANNEL", "").strip()

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def refusal(self, answer: Answer) -> Exception | None:
        code = answer.word("error") if answer.status == 200 else ""
        if code in _RATE_LIMITED:
            return RateLimited(answer.retry_after())
        if _TOKEN_REFUSED.fullmatch(code):
            return TokenRefused(code)
        if code in _PERHAPS_POSTED:
            return RuntimeError(f"{code}: it may have been posted")
        if code and not _NO.fullmatch(code):
            return RuntimeError(code)
        return super().refusal(answer)

    def post_message(self, ctx: Context, channel: str | None, text: str) -> str:
        """Post it, in Slack's markup. Empty, or the code of a no that is no fault.

        One that has no answer may have been posted, so it is not sent again: Slack knows no idempotency key.
        """
        if not (channel := channel or self.channel) and self.token:
            raise NoToken("SLACK_CHANNEL")
        answer = self.call(ctx, "POST", "/chat.postMessage", body={"channel": channel, "text": text})
        if answer.read(_Posted).ok:
            return ""
        if code := answer.word("error"):
            return code
        raise ValueError("slack: not ok, and no code that says why")
