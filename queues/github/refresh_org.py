"""github.RefreshOrg: an organisation and its public repositories; those that have changed are read one by one."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from queues.github import conditional, repos
from queues.github.client import GitHubClient, Organisation, Repository
from supervisor import DB, Context, fail, insert_many

_HERE = Path(__file__).parent
_STALE_REPOS = (_HERE / "stale_repos.sql").read_bytes()
_UPDATE_COMPANY = (_HERE / "update_company.sql").read_bytes()

# The oldest first: a new repository is at the end, and the pages before it keep their ETags.
_PAGES = "repos?per_page=100&type=public&sort=created&direction=asc"


class RefreshOrgArgs(msgspec.Struct):
    org: str


def refresh_org(ctx: Context, args: RefreshOrgArgs, *, db: DB, client: GitHubClient) -> str:
    org = f"/orgs/{quote(args.org, safe='')}"
    found = conditional.get(ctx, db, client, org, Organisation)
    if found is None:
        return fail("no such organisation")
    with db.connection() as connection:
        about = {"org": args.org, "description": found.value.description, "blog": found.value.blog}
        connection.execute(_UPDATE_COMPANY, about)
    repositories = stale = 0
    path: str | None = f"{org}/{_PAGES}"
    while path:
        page = conditional.get(ctx, db, client, path, list[Repository])
        if page is None:
            return fail("no such organisation any more")
        repositories += len(page.value)
        stale += _write(db, page.value)
        path = page.next
    return f"ok: {repositories} repositories, {stale} stale"


def _write(db: DB, page: Sequence[Repository]) -> int:
    """One page in one transaction, with the jobs for what is stale of it: what was read stays."""
    with db.connection() as connection:
        repos.upsert(connection, page, by_themselves=False)
        stale = connection.execute(_STALE_REPOS, {"ids": [repository.id for repository in page]}).fetchall()
        jobs = [("github", "github.RefreshRepo", {"owner": owner, "repo": name}) for owner, name in stale]
        return sum(id > 0 for id in insert_many(connection, jobs))  # 0: it waits already
