"""A queue by the name that the operator's manual uses in its examples."""

import time

import msgspec

from supervisor import DB, Context, Scheduled, Worker


class Message(msgspec.Struct):
    text: str


def post_message(ctx: Context, args: Message) -> str:
    if args.text == "slow":
        time.sleep(60)
    return "ok"


def slack(db: DB) -> Worker:
    return Worker(queue="slack", handlers={"slack.PostMessage": post_message})


registry = [slack]
schedule: list[Scheduled] = []
