"""Anthropic's Messages API: one message in, one out. The model is the setting ANTHROPIC_MODEL.

https://platform.claude.com/docs/en/api/errors , https://platform.claude.com/docs/en/api/rate-limits ,
https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons . Not verified, since the reference page
https://platform.claude.com/docs/en/api/messages was not at hand: the names of the request's headers, the reasons
max_tokens and refusal (many clients agree on all of them); the text about a credit balance; retry-after on a 529.
"""

import os

import msgspec

from queues.http import Answer, Client, NoToken
from supervisor import Context, RateLimited, TokenRefused, UnexpectedStatus

# A 400 whose message begins like this; the first two are limits that the user set for an organization or a workspace.
_SPENT = {
    "You have reached your specified API usage limits": "usage_limit_reached",
    "You have reached your specified workspace API usage limits": "workspace_usage_limit_reached",
    "Your credit balance is too low": "credit_balance_too_low",
}


class Block(msgspec.Struct):
    type: str
    text: str = ""


class Message(msgspec.Struct):
    content: list[Block]
    model: str
    stop_reason: str | None = None

    def text(self) -> str:
        return "".join(block.text for block in self.content if block.type == "text").strip()


class AnthropicClient(Client):
    vendor = "anthropic"
    default_url = "https://api.anthropic.com"

    def __init__(self) -> None:
        super().__init__()
        self.model = os.environ.get("ANTHROPIC_MODEL", "").strip()

    def headers(self) -> dict[str, str]:
        return {"x-api-key": self.token, "anthropic-version": "2023-06-01"}

    def refusal(self, answer: Answer) -> Exception | None:
        """A spent budget is like a refused token: nothing runs before a person, or the next month, changes it."""
        kind = answer.word("error", "type")
        match answer.status:
            case 400 if codes := [code for text, code in _SPENT.items() if answer.says(text, "error", "message")]:
                return TokenRefused(codes[0])
            case 402:
                return TokenRefused(kind)
            case 429 if answer.word("error", "details", "error_code") == "enforced_spend_limit_reached":
                return TokenRefused("enforced_spend_limit_reached")
            case 429 | 529:  # overloaded: nothing ran
                return RateLimited(answer.retry_after())
            case status if status >= 300:
                return UnexpectedStatus(status, kind)
        return None

    def ask(self, ctx: Context, system: str, content: str, max_tokens: int) -> Message:
        """One answer. Paid for by the token, so never asked a second time where it may have been given."""
        if self.token and not self.model:
            raise NoToken("ANTHROPIC_MODEL")  # like the token: no job can do without
        messages = [{"role": "user", "content": content}]
        body = {"model": self.model, "max_tokens": max_tokens, "system": system, "messages": messages}
        return self.call(ctx, "POST", "/v1/messages", body=body).read(Message)
