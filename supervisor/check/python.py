"""Reads Python by its syntax tree, running none of it: each call that enqueues, each SQL text that writes to jobs.

A name is looked up as the interpreter would: through imports and aliases, constants of modules under the root,
and variables of the function whose every value is in sight. What is left is unreadable.
"""

import ast
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.check.sql import COMPUTED, WRITES, Args, Named, Place, Unreadable
from supervisor.check.sql import read as read_sql

_PARAMETERS = {
    "insert": ("db", "queue", "name", "args"),
    "insert_async": ("connection", "queue", "name", "args"),
    "insert_many": ("db", "jobs"),
    "Scheduled": ("queue", "name", "predicate", "args"),
}
_PUBLIC = {f"supervisor.{room}{name}": name for room in ("", "enqueue.", "schedule.") for name in _PARAMETERS}
_SQL = re.compile(r"(\s|--.*\n)*(insert|with|merge|copy|create|do|begin)\b", re.IGNORECASE)  # else it is prose
_DEEPEST = 20  # look-ups after one another: constants may name each other in a circle

Values = dict[str, list[ast.expr]]  # by name, all that it is given; empty where that is not known


class Module:
    """A file's imports, wherever they stand, and the constants of its module and classes."""

    def __init__(self, file: Path, name: str, text: str) -> None:
        """Raises SyntaxError and ValueError."""
        self.name = name
        self.tree = ast.parse(text, file)
        self.imports: dict[str, str] = {}
        self.constants = _assigned(self.tree.body)
        package = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    self.imports[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) + 1 - node.level] if node.level else []
                source = ".".join([*above, *filter(None, [node.module])])
                for alias in node.names:
                    for word in _PARAMETERS if alias.name == "*" else [alias.name]:
                        self.imports[alias.asname or word] = f"{source}.{word}"
            elif isinstance(node, ast.ClassDef):
                self.constants |= {f"{node.name}.{word}": given for word, given in _assigned(node.body).items()}


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where a name is looked up: the functions around it, innermost first, then its module."""

    module: Module
    functions: tuple[Values, ...] = ()


class Reader:
    """Reads modules, each of which may take its constants from any other."""

    def __init__(self, modules: Mapping[str, Module]) -> None:
        self._modules = modules  # by dotted name

    def read(self, module: Module) -> Iterator[Place]:
        return self._visit(module.tree, _Scope(module))

    def _visit(self, node: ast.AST, scope: _Scope) -> Iterator[Place]:
        parts = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            scope = _Scope(scope.module, (_variables(node), *scope.functions))
        elif isinstance(node, ast.Call):
            for place, given in enumerate([node.func, *node.args]):
                # Not only called: `partial(insert, db, ...)` and `to_thread(insert, db, ...)` pass on what follows.
                if function := self._public(given, scope):
                    yield self._call(node, function, node.args[place:], scope)
                    parts.remove(given)
        elif isinstance(node, ast.Assign) and not scope.functions and _dotted(node.value):
            return  # an alias, which is followed from where it is used
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return  # a docstring
        elif isinstance(node, ast.Name | ast.Attribute):
            if self._public(node, scope) not in ("", "Scheduled"):
                yield Place(node.lineno, node.lineno, node.lineno, unreadable="what this does with insert")
        elif isinstance(node, ast.expr) and (text := _text(node)) is not None:
            yield from _sql(node, text)
            return
        for part in parts:
            yield from self._visit(part, scope)

    def _public(self, node: ast.expr, scope: _Scope) -> str:
        """The name in _PARAMETERS of what `node` names, or empty."""
        found = self._look_up(dotted, scope.module) if (dotted := _dotted(node)) else ""
        return _PUBLIC.get(found, "") if isinstance(found, str) else ""

    def _look_up(self, dotted: str, module: Module) -> tuple[Module, list[ast.expr]] | str:
        """The values that a name of `module` has, and where; what is not under the root, by its full name."""
        full = dotted
        for _ in range(_DEEPEST):
            head, dot, rest = dotted.partition(".")
            full = module.imports[head] + dot + rest if head in module.imports else f"{module.name}.{dotted}"
            parts = full.split(".")
            cuts = (cut for cut in range(len(parts) - 1, 0, -1) if ".".join(parts[:cut]) in self._modules)
            if not (cut := next(cuts, 0)):
                return full
            module, dotted = self._modules[".".join(parts[:cut])], ".".join(parts[cut:])
            if values := module.constants.get(dotted):
                alias = _dotted(values[0])
                if len(values) > 1 or not alias:
                    return module, values
                dotted = alias
            elif parts[cut] not in module.imports:
                return full
        return full

    def _call(self, node: ast.Call, function: str, given: Sequence[ast.expr], scope: _Scope) -> Place:
        plain = list(itertools.takewhile(lambda argument: not isinstance(argument, ast.Starred), given))
        arguments = dict(zip(_PARAMETERS[function], plain, strict=False))
        arguments |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        if len(plain) < len(node.args) or not all(keyword.arg for keyword in node.keywords):
            arguments.setdefault("args", node)  # there may be some: it is passed on, or has stars
        place = Place(node.lineno, node.lineno, node.end_lineno or node.lineno, scheduled=function == "Scheduled")
        try:
            if function != "insert_many":
                rows = [(arguments["queue"], arguments["name"], arguments.get("args"), scope)]
            else:
                rows = list(self._rows(arguments["jobs"], scope))
            return replace(place, jobs=tuple(job for row in rows for job in self._jobs(*row)))
        except KeyError as missing:
            return replace(place, unreadable=f"the argument {missing}")
        except Unreadable as error:
            return replace(place, unreadable=str(error))

    def _rows(self, node: ast.expr, scope: _Scope) -> Iterator[tuple[ast.expr, ast.expr, ast.expr, _Scope]]:
        """Of a list, or what may be spread in one, the tuples of three."""
        for value, where in self._values(node, scope):
            if isinstance(value, ast.Tuple) and len(value.elts) == 3 and not isinstance(value.elts[0], ast.Tuple):
                yield value.elts[0], value.elts[1], value.elts[2], where
            elif isinstance(value, ast.List | ast.Tuple | ast.Set) and value.elts:
                for item in value.elts:
                    yield from self._rows(item.value if isinstance(item, ast.Starred) else item, where)
            elif isinstance(value, ast.ListComp | ast.GeneratorExp | ast.SetComp):
                yield from self._rows(value.elt, where)
            elif isinstance(value, ast.BinOp):
                yield from (*self._rows(value.left, where), *self._rows(value.right, where))
            else:
                raise _unreadable(node)

    def _jobs(self, queue: ast.expr, name: ast.expr, args: ast.expr | None, scope: _Scope) -> Iterator[Named]:
        queues, names = self._strings(queue, scope), self._strings(name, scope)
        if len(queues) > 1 and len(names) > 1:
            raise Unreadable("which name goes with which queue")
        for pair in itertools.product(queues, names):
            yield Named(*pair, _args(args))

    def _strings(self, node: ast.expr, scope: _Scope) -> list[str]:
        """Every text that it may be."""
        found = []
        for value, where in self._values(node, scope):
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found.append(value.value)
            elif isinstance(value, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.FormattedValue) else part for part in value.values]
                found += map("".join, itertools.product(*(self._strings(part, where) for part in parts)))
            elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
                both = itertools.product(self._strings(value.left, where), self._strings(value.right, where))
                found += map("".join, both)
            else:
                raise _unreadable(node)
        return found

    def _values(self, node: ast.expr, scope: _Scope, depth: int = 0) -> Iterator[tuple[ast.expr, _Scope]]:
        """Every expression that it may stand for, none of them a name."""
        if isinstance(node, ast.IfExp):
            yield from (*self._values(node.body, scope, depth), *self._values(node.orelse, scope, depth))
        elif not (dotted := _dotted(node)):
            yield node, scope
        else:
            local = next((variables[dotted] for variables in scope.functions if dotted in variables), None)
            found = (scope.module, local) if local is not None else self._look_up(dotted, scope.module)
            if isinstance(found, str) or not found[1] or depth == _DEEPEST:
                raise _unreadable(node)
            where = scope if local is not None else _Scope(found[0])
            for value in found[1]:
                yield from self._values(value, where, depth + 1)


def _assigned(body: Sequence[ast.stmt]) -> Values:
    found: Values = {}
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
    return found


def _variables(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Values:
    """Of its variables, and those of functions in it, what is assigned; not known if anything else may change it."""
    stores = Counter(node.arg for node in ast.walk(function) if isinstance(node, ast.arg))
    given: Values = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stores[node.id] += 1
        elif isinstance(node, ast.Attribute) and node.attr in ("append", "extend"):
            stores[_dotted(node.value)] += 1
        elif isinstance(node, ast.stmt):
            for name, values in _assigned([node]).items():
                given[name] = given.get(name, []) + values
    return {name: given.get(name, []) if len(given.get(name, [])) == count else [] for name, count in stores.items()}


def _dotted(node: ast.expr) -> str:
    """`a.b.c`; empty for what is no such name."""
    if isinstance(node, ast.Attribute):
        return f"{above}.{node.attr}" if (above := _dotted(node.value)) else ""
    return node.id if isinstance(node, ast.Name) else ""


def _unreadable(node: ast.expr) -> Unreadable:
    return Unreadable(f"`{ast.unparse(node):.60}`")


def _args(node: ast.expr | None) -> Args | None:
    """Of a literal dict. A Struct's own type is the type checker's to look at."""
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return Args({})
    if not isinstance(node, ast.Dict):
        return None
    items = zip(node.keys, node.values, strict=True)
    values = {key.value: _literal(value) for key, value in items if isinstance(key, ast.Constant)}
    return Args(values, whole=all(isinstance(key, ast.Constant) for key in node.keys))


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return COMPUTED


def _text(node: ast.expr) -> str | None:
    """A text as it is written, what it is formatted with left open; None for what is none."""
    if isinstance(node, ast.Constant):
        value = node.value.decode(errors="replace") if isinstance(node.value, bytes) else node.value
        return value if isinstance(value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or COMPUTED for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        return None if left is None or right is None else left + right
    return None


def _sql(node: ast.expr, text: str) -> Iterator[Place]:
    if WRITES.search(text) and _SQL.match(text):
        last = node.end_lineno or node.lineno
        for place in read_sql(text):
            yield replace(place, line=min(node.lineno + place.line - 1, last), first=node.lineno, last=last)
