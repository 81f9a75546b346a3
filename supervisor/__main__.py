"""`python -m supervisor` is the `paceline` command."""

import sys

from supervisor.cli import main

sys.exit(main())
