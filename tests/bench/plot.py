"""`make bench-plot`: two pictures for the README, from what the last `make bench` has written."""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot

_OURS, _FLOOR = "#1f6f8b", "#b0b0b0"


def ratios(rows: list[dict[str, Any]], file: Path) -> None:
    """Each scenario's ratio to its floor, as a bar, with what was to be reached."""
    shown = [row for row in rows if row["ratio"] and row["reach"].startswith(">=")][::-1]
    figure, axes = pyplot.subplots(figsize=(8, 0.9 + 0.55 * len(shown)), layout="constrained")
    for place, row in enumerate(shown):
        axes.barh(place, row["ratio"], color=_OURS, height=0.6)
        reach = float(row["reach"].removeprefix(">="))
        axes.plot([reach, reach], [place - 0.4, place + 0.4], color="black", linewidth=1.5)
        axes.text(0.01, place, f"{row['ratio']:.2f}", ha="left", va="center", color="white")
    axes.set_yticks(range(len(shown)), [f"{row['scenario']}: {row['measure']}" for row in shown])
    axes.axvline(1.0, color=_FLOOR, linestyle="--", zorder=0)
    axes.set_xlabel("share of the floor of the same run; black: to be reached")
    _finish(figure, axes, file)


def wakes(samples: dict[str, list[float]], file: Path) -> None:
    """How many of the wakes took no longer than so many milliseconds, ours and the floor's."""
    figure, axes = pyplot.subplots(figsize=(8, 3.2), layout="constrained")
    for name, label, colour in (
        ("floor", "NOTIFY to a bare process, and its claim", _FLOOR),
        ("ours", "enqueue to the handler's first line", _OURS),
    ):
        ordered = sorted(samples[name])
        shares = [100 * (number + 1) / len(ordered) for number in range(len(ordered))]
        axes.step([value * 1e3 for value in ordered], shares, where="post", color=colour, label=label)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel("milliseconds")
    axes.set_ylabel("% of wakes")
    axes.legend(frameon=False, loc="lower right")
    _finish(figure, axes, file)


def _finish(figure: Any, axes: Any, file: Path) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=110)
    print(file)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.plot")
    parser.add_argument("--json", type=Path, default=Path("bench.json"), metavar="FILE")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent, metavar="DIRECTORY")
    arguments = parser.parse_args()
    measured = json.loads(arguments.json.read_text())
    ratios(measured["rows"], arguments.to / "bench-ratios.png")
    if "wake" in measured["series"]:
        wakes(measured["series"]["wake"], arguments.to / "bench-wake.png")


main()
