"""The rows that are reported: one table for a reader, JSON for plots and for the next run to be compared with."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One measure. `ratio` is what counts where there is a floor or a variant to compare with."""

    scenario: str
    measure: str
    ours: float
    floor: float | None = None  # the floor, or the variant, of the same run
    ratio: float | None = None
    reach: str = ""
    reached: bool | None = None  # None: nothing to reach
    note: str = ""


Reach = Callable[[float], tuple[str, bool]]  # of a value: what is to be reached, and whether it is


def at_least(bound: float) -> Reach:
    return lambda value: (f">= {bound:g}", value >= bound)


def at_most(bound: float) -> Reach:
    return lambda value: (f"<= {bound:g}", value <= bound)


def below(bound: float) -> Reach:
    return lambda value: (f"< {bound:g}", value < bound)


def row(
    scenario: str,
    measure: str,
    ours: float,
    *,
    floor: float | None = None,
    ratio: float | None = None,
    reach: Reach | None = None,
    note: str = "",
) -> Row:
    """A row, judged by its ratio if it has one, else by its value."""
    wanted, reached = reach(ours if ratio is None else ratio) if reach else ("", None)
    return Row(scenario, measure, ours, floor, ratio, wanted, reached, note)


def compared(
    scenario: str, measure: str, pairs: Sequence[tuple[float, float]], reach: Reach | None = None, note: str = ""
) -> Row:
    """A row of (ours, floor) pairs, each measured side by side: the medians, and the median of the ratios."""
    ratios = sorted(ours / floor for ours, floor in pairs)
    ours, floor = (median(values) for values in zip(*pairs, strict=True))
    spread = f"{len(pairs)} rounds, {ratios[0]:.2f} to {ratios[-1]:.2f}"
    note = f"{spread}; {note}" if note else spread
    return row(scenario, measure, ours, floor=floor, ratio=median(ratios), reach=reach, note=note)


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass
class Report:
    """All that one run has measured."""

    facts: dict[str, Any]  # of the server and the machine
    rows: list[Row] = field(default_factory=list)
    series: dict[str, Any] = field(default_factory=dict)  # for plots

    def add(self, found: Row) -> None:
        self.rows.append(found)
        print(line(found), flush=True)

    def write(self, path: Path) -> None:
        content = {"facts": self.facts, "rows": [asdict(row) for row in self.rows], "series": self.series}
        path.write_text(json.dumps(content, indent=1) + "\n")


_WIDTHS = "{:<10} {:<40} {:>10} {:>10} {:>6}  {:<9} {:<8} {}"
HEAD = _WIDTHS.format("scenario", "measure", "paceline", "floor", "ratio", "reach", "", "note") + "\n" + "-" * 120


def line(row: Row) -> str:
    verdict = {True: "reached", False: "NOT", None: ""}[row.reached]
    return _WIDTHS.format(
        row.scenario,
        row.measure,
        _shown(row.ours),
        _shown(row.floor),
        _shown(row.ratio, 2),
        row.reach,
        verdict,
        row.note,
    ).rstrip()


def _shown(value: float | None, digits: int | None = None) -> str:
    if value is None:
        return ""
    if digits is None:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3
    return f"{value:.{digits}f}"
