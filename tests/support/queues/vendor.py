"""A client of a vendor that refuses: the errors that rest or pause a queue."""

from typing import Any

import msgspec

from supervisor import DB, Context, RateLimited, TokenRefused, UnexpectedStatus, Worker
from tests.support.queues.settings import POLL_INTERVAL


class Status(msgspec.Struct):
    code: int


class Limited(msgspec.Struct):
    seconds: float


def new_worker(db: DB) -> Worker:
    return Worker(
        queue="vendor",
        handlers={
            "vendor.Ok": ok,
            "vendor.Status": status,
            "vendor.TokenRefused": token_refused,
            "vendor.RateLimited": rate_limited,
        },
        poll_interval=POLL_INTERVAL,
    )


def ok(ctx: Context, args: dict[str, Any]) -> str:
    return "ok"


def status(ctx: Context, args: Status) -> str:
    raise UnexpectedStatus(args.code)


def token_refused(ctx: Context, args: dict[str, Any]) -> str:
    raise TokenRefused("invalid_auth")


def rate_limited(ctx: Context, args: Limited) -> str:
    raise RateLimited(args.seconds)
