"""github.RefreshRepo: one repository, also by a name that it had before."""

from urllib.parse import quote

import msgspec

from queues.github import conditional, repos
from queues.github.client import GitHubClient, Repository
from supervisor import DB, Context, fail


class RefreshRepoArgs(msgspec.Struct):
    owner: str
    repo: str


def refresh_repo(ctx: Context, args: RefreshRepoArgs, *, db: DB, client: GitHubClient) -> str:
    path = f"/repos/{quote(args.owner, safe='')}/{quote(args.repo, safe='')}"
    found = conditional.get(ctx, db, client, path, Repository)
    if found is None:
        return fail("no such repository")
    with db.connection() as connection:
        repos.upsert(connection, [found.value], by_themselves=True)
    return "ok"
