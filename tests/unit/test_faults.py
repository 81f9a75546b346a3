"""The table of faults in tests/README.md has them all, and each test that it names exists and tells their number."""

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
FAULTS = 46
TABLE = re.findall(r"^\| (\d+) \| .+ \| (.+) \|$", (TESTS / "README.md").read_text(), re.MULTILINE)
NAMED = [(int(number), *name) for number, tests in TABLE for name in re.findall(r"`([^`]+\.py)::(\w+)`", tests)]


@cache
def docstrings(file: str) -> dict[str, str]:
    """What the file's tests say that they prove, by name; the file's own words are each one's too."""
    module = ast.parse((TESTS / file).read_text())
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    return {node.name: f"{ast.get_docstring(module)} {ast.get_docstring(node)}" for node in functions}


def numbers(text: str) -> set[int]:
    """7, of `FAULTS 7`; 26 and 35, of `FAULTS 26 and 35`."""
    return {int(number) for found in re.findall(r"FAULTS (\d+(?: and \d+)*)", text) for number in found.split(" and ")}


def test_all_faults_are_in_the_table_in_their_order() -> None:
    assert [int(number) for number, _ in TABLE] == list(range(1, FAULTS + 1))


def test_no_fault_is_without_a_test() -> None:
    without = {number for number, tests in TABLE if "::" not in tests}
    assert without == set()


def test_each_test_in_the_table_exists_and_says_which_fault_it_is_of() -> None:
    assert NAMED
    assert [(file, name) for _, file, name in NAMED if name not in docstrings(file)] == []
    assert [(fault, name) for fault, file, name in NAMED if fault not in numbers(docstrings(file)[name])] == []
