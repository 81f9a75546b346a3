"""Anthropic's stand-in: a sentence or two about the company whose facts it is sent.

What is known of the vendor is in queues/anthropic/client.py. Not verified: the texts of errors.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

from deploy.sandbox.server import TOKEN, Refused, Reply, Request, Vendor

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
MODEL = "claude-sandbox"


class Anthropic(Vendor):
    name = "anthropic"
    settings: ClassVar[Mapping[str, str]] = {"ANTHROPIC_MODEL": MODEL}

    def authorise(self, request: Request) -> None:
        given = request.headers.get("x-api-key", "")
        if given != TOKEN:
            raise Refused(error(401, f"invalid x-api-key {given}"))
        if request.headers.get("anthropic-version") != "2023-06-01":
            raise Refused(error(400, "anthropic-version: header is required"))
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise Refused(error(400, "content-type: must be application/json"))

    def refusal(self, status: int, retry_after: float) -> Reply:
        """A wait is promised for a 429 only."""
        return error(status, f"status {status}", {"retry-after": f"{retry_after:g}"} if status == 429 else None)

    def messages(self, request: Request) -> Reply:
        asked = request.json()
        if not isinstance(asked, dict):
            return error(400, "The request body is not valid JSON")
        model, longest, messages = (asked.get(key) for key in ("model", "max_tokens", "messages"))
        if not isinstance(model, str) or not isinstance(longest, int) or longest < 1:
            return error(400, "model, max_tokens: Field required")
        if not isinstance(messages, list) or not messages or messages[0].get("role") != "user":
            return error(400, "messages: first message must use the user role")
        if model != MODEL:
            return error(404, f"model: {model}")
        return Reply(200, message(model, summary(messages[0].get("content"))), {"request-id": "req_sandbox"})

    routes = (("POST", "/v1/messages", messages),)


def error(status: int, message: str, headers: dict[str, str] | None = None, **details: str) -> Reply:
    """`details`: the spend cap's error_code."""
    body: dict[str, Any] = {"type": KINDS.get(status, "api_error"), "message": message}
    if details:
        body["details"] = details
    return Reply(status, {"type": "error", "error": body, "request_id": "req_sandbox"}, headers or {})


def message(model: str, *texts: str, stop_reason: str = "end_turn") -> dict[str, Any]:
    return {
        "id": "msg_sandbox",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": text} for text in texts],
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 200, "output_tokens": 60},
    }


def summary(content: object) -> str:
    facts: dict[str, Any] = {}
    with suppress(ValueError, TypeError):
        facts = json.loads(content) if isinstance(content, str) else {}
    text = f"{facts.get('name', 'This company')} works in {facts.get('industry', 'a field that nobody has told us')}"
    if employees := facts.get("employees"):
        text += f" and employs about {employees} people"
    if repositories := facts.get("repositories"):
        text += f". Its most starred repository is {repositories[0]['name']}"
    return f"{text}. (The sandbox has invented this.)"
