"""A primary and its streaming standby with synchronous replication, as DATABASE_URL names them: two hosts."""

import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from tests.support.server import Server, home
from tests.support.wait import eventually

# Or a standby whose primary has died may take 5 s to notice that it is promoted.
_SETTINGS = {"wal_retrieve_retry_interval": "100ms"}


class Pair:
    """Of two servers, one is the primary. `url` names both."""

    def __init__(self, primary: Server, standby: Server) -> None:
        self.primary, self.standby = primary, standby
        # By a name, so that the parent's resolution is a part of every failover.
        self.url = f"postgresql://postgres@localhost:{primary.port},localhost:{standby.port}/postgres"

    def start(self) -> None:
        self.primary.make()
        self.primary.start()
        self.primary.migrate()
        self.attach()

    def attach(self) -> None:
        """Make the standby anew from the primary; from then on no commit is done that it has not stored."""
        self.standby.stop("immediate")
        shutil.rmtree(self.standby.data, ignore_errors=True)
        self.standby.copy(self.primary, "-R")
        self.standby.start()
        self.primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.execute("SELECT pg_reload_conf()")
        eventually(lambda: self.primary.execute("SELECT pid FROM pg_stat_replication WHERE sync_state = 'sync'"))

    def fail_over(self, mode: str) -> None:
        """The primary ends by this mode of pg_ctl's, and the standby takes its place."""
        self.primary.stop(mode)
        self.promote()

    def promote(self) -> None:
        """The standby becomes the primary. If the old one runs, its commits wait for ever."""
        # What a failover manager does first: the copy has its primary's settings.
        self.standby.execute("ALTER SYSTEM RESET synchronous_standby_names")
        self.standby.execute("SELECT pg_reload_conf()")
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def stop(self) -> None:
        self.primary.stop("immediate")
        self.standby.stop("immediate")


@contextmanager
def pair() -> Iterator[Pair]:
    """Both started, the standby in step; stopped and removed at the end."""
    with ExitStack() as stack:
        found = Pair(*(Server(stack.enter_context(home()), _SETTINGS, port) for port in _free_ports(2)))
        stack.callback(found.stop)
        found.start()
        yield found


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(closing(socket.create_server(("127.0.0.1", 0)))) for _ in range(count)]
        return [opened.getsockname()[1] for opened in sockets]
