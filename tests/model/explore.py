"""Visits every state that a model can reach, breadth first, and keeps the shortest way to what goes wrong.

It knows nothing of leases: a model gives a start, the steps from a world, and says which worlds are alike.
"""

from array import array
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

World = TypeVar("World")


class Step(NamedTuple, Generic[World]):
    name: str
    after: World
    fault: bool = False  # it takes one of the faults that are left
    rescue: bool = False  # no row may depend on it to become final
    wrong: str = ""  # the promise that this step breaks
    limit: str = ""  # the known limit by which it does


class Model(Protocol[World]):
    start: World

    def steps(self, world: World, *, faults: bool) -> Iterator[Step[World]]: ...

    def alike(self, world: World) -> World:
        """One and the same for worlds that differ in the names of hosts only."""

    def served(self, world: World) -> bool:
        """Somebody is there to bring every row to its end."""

    def over(self, world: World) -> bool:
        """Every row is final."""


@dataclass
class Explored(Generic[World]):
    worlds: list[World]  # every state that was reached
    wrong: str = ""
    path: list[str] = field(default_factory=list)  # to the first wrong step, or to a state with no way to the end
    limits: Counter[str] = field(default_factory=Counter)  # steps not followed, by the known limit
    examples: dict[str, list[str]] = field(default_factory=dict)  # the shortest path to each limit


class Explorer(Generic[World]):
    def __init__(self, model: Model[World]) -> None:
        self.model = model
        self.worlds = [model.alike(model.start)]
        self.numbers = {self.worlds[0]: 0}
        self.came_from = array("l", [-1])
        self.sources, self.targets = array("l"), array("l")  # the steps that need neither a fault nor a rescue
        self.limited = set[int]()  # the states with a step that was not followed

    def explore(self, faults: int) -> Explored[World]:
        """Every state within `faults` faults, the fewest first; ends at the first wrong step that is no known limit."""
        found = Explored(self.worlds)
        used = array("b", [0])
        level = deque([0])
        for spent in range(faults + 1):
            next_level: deque[int] = deque()
            while level:
                number = level.popleft()
                if used[number] != spent:
                    continue  # it was reached with fewer faults meanwhile
                for step in self.model.steps(self.worlds[number], faults=spent < faults):
                    if step.wrong and step.limit:
                        self.limited.add(number)
                        found.limits[step.limit] += 1
                        if step.limit not in found.examples:
                            found.examples[step.limit] = self.path(number, step)
                        continue
                    if step.wrong:
                        found.wrong, found.path = step.wrong, self.path(number, step)
                        return found
                    target, needs = self.number_of(step.after, number), spent + step.fault
                    if target == len(used):
                        used.append(needs)
                        (next_level if step.fault else level).append(target)
                    elif needs < used[target]:
                        used[target] = needs
                        level.append(target)
                    if not step.fault and not step.rescue:
                        self.sources.append(number)
                        self.targets.append(target)
            level = next_level
        stuck = self.stuck()
        if stuck is not None:
            found.wrong, found.path = "a row cannot become final", self.path(stuck)
        return found

    def number_of(self, world: World, source: int) -> int:
        world = self.model.alike(world)
        number = self.numbers.setdefault(world, len(self.worlds))
        if number == len(self.worlds):
            self.worlds.append(world)
            self.came_from.append(source)
        return number

    def stuck(self) -> int | None:
        """A state that is served, and from which no steps without faults and rescues lead to the end."""
        ends = bytearray(self.model.over(world) or n in self.limited for n, world in enumerate(self.worlds))
        grows = True
        while grows:
            grows = False
            for source, target in zip(reversed(self.sources), reversed(self.targets), strict=True):
                if ends[target] and not ends[source]:
                    ends[source] = grows = True
        return next((n for n, world in enumerate(self.worlds) if not ends[n] and self.model.served(world)), None)

    def path(self, number: int, last: Step[World] | None = None) -> list[str]:
        """The names of the steps from the start to state `number`, and on by `last`."""
        chain = []
        while number > 0:
            chain.append(self.worlds[number])
            number = self.came_from[number]
        names, world = [], self.model.start
        for target in reversed(chain):  # walked anew, so that a host keeps its name all the way
            steps = self.model.steps(world, faults=True)
            step = next(step for step in steps if not step.wrong and self.model.alike(step.after) == target)
            names.append(step.name)
            world = step.after
        if last is not None:
            steps = self.model.steps(world, faults=True)
            names.append(next(step.name for step in steps if (step.wrong, step.limit) == (last.wrong, last.limit)))
        return names


def explore(model: Model[World], faults: int) -> Explored[World]:
    return Explorer(model).explore(faults)
