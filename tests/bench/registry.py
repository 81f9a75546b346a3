"""One queue of jobs that do nothing."""

from supervisor import Context, Worker


def nothing(ctx: Context, args: dict[str, object]) -> str:
    return "ok"


registry = [lambda db: Worker(queue="bench", handlers={"bench.Nothing": nothing})]
schedule: list[object] = []
