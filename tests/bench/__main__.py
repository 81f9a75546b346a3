"""`make bench`: prints one table, and writes it as JSON. See `python -m tests.bench --help`."""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench import sizes
from tests.bench.drains import drain_1, drain_40, history, horizon
from tests.bench.idles import idle, memory
from tests.bench.lives import boot, hand_over
from tests.bench.place import Place, place
from tests.bench.profile import profile
from tests.bench.table import HEAD, Report, Row
from tests.bench.wakes import enqueue, wake

Scenario = Callable[[Place, dict[str, Any]], Iterator[Row]]
SCENARIOS: dict[str, Scenario] = {
    "drain-1": drain_1,
    "profile": profile,
    "drain-40": drain_40,
    "wake": wake,
    "enqueue": enqueue,
    "idle": idle,
    "memory": memory,
    "horizon": horizon,
    "history": history,
    "boot": boot,
    "hand-over": hand_over,
}


def main() -> None:
    arguments = parse()
    chosen = arguments.sizes
    if arguments.history:
        chosen = replace(chosen, history=arguments.history)
    with place(chosen) as where:
        report = Report(where.facts())
        print(HEAD, flush=True)
        for name in arguments.only or SCENARIOS:
            for found in SCENARIOS[name](where, report.series):
                report.add(found)
            report.write(arguments.json)  # after each, so that a run that is cut short has told something
    print("\nserver and machine: " + ", ".join(f"{name} {value}" for name, value in report.facts.items()))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="Measure against floors, on a durable server of its own, or on DATABASE_URL's in new databases.",
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", dest="sizes", action="store_const", const=sizes.FULL, default=sizes.DEFAULT)
    size.add_argument("--tiny", dest="sizes", action="store_const", const=sizes.TINY, help="to try the harness")
    parser.add_argument("--only", type=_names, metavar="NAME,NAME", help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--history", type=_numbers, metavar="ROWS,ROWS", help="finished rows, each against none")
    parser.add_argument("--json", type=Path, default=Path("bench.json"), metavar="FILE")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    if unknown := [name for name in text.split(",") if name not in SCENARIOS]:
        raise argparse.ArgumentTypeError(f"no scenario {unknown[0]!r}: there are {', '.join(SCENARIOS)}")
    return text.split(",")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part.replace("_", "")) for part in text.split(","))


main()
