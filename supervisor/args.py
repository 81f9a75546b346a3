"""A job's args: to JSON text on their way into a row, to the handler's own type on their way out.

Which handler gets them, and what becomes of a mismatch, is not decided here.
"""

import dataclasses
import functools
import inspect
import math
import re
import reprlib
import typing
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any, TypeAlias

import msgspec
from msgspec import NODEFAULT, UNSET, Struct

from supervisor.errors import BadArgs

DEEPEST = 100  # objects and arrays inside each other: every reader's stack has room for that
_LONGEST_INT = 4_300  # digits; Python, and so the handler's process, refuses to read more
_TOO_BIG = 10**_LONGEST_INT
_prepared: dict[int, tuple[object, Callable[[str | bytes], Any]]] = {}  # by the id of the handler, which is kept
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # in jsonb; a surrogate in a str is always a lone one

_WHOLES = (dict, list, tuple, set, frozenset, Mapping)
_Path: TypeAlias = "str | tuple[_Path, object]"  # (path of the whole, key or index); spelt out only for an error


def encode(args: Mapping[str, Any] | Struct | None, path: str = "args") -> str:
    """`args` as the JSON text of an object that jsonb can hold; `{}` for None.

    Values are written as msgspec writes them, a set in a fixed order, so that equal sets dedupe. A Struct,
    at any depth, gives only what was set: no field that equals its default. A scalar from a default_factory
    is no default but a drawn value (a time, a UUID), and is written.

    Raises BadArgs, naming the place, for what jsonb or the handler's process could not read.
    """
    if args is None:
        return "{}"
    try:
        plain = _plain(args, path, 0)
    except RecursionError:  # only where the caller itself stands near Python's limit
        raise BadArgs(f"{path}: nested too deeply for the stack that is left") from None
    if not isinstance(plain, dict):
        raise BadArgs(f"{path}: {type(args).__name__} is no JSON object; give a dict or a Struct")
    return msgspec.json.encode(plain).decode()


def _plain(value: Any, path: _Path, depth: int) -> Any:
    """`value` made of dicts, lists, texts, numbers, bools and None, every one of them checked."""
    kind = type(value)
    if kind is str:
        return _text(value, path, "text")
    if value is None or kind is bool:
        return value
    if kind is int:
        if not -_TOO_BIG < value < _TOO_BIG:
            raise _bad(path, f"an int of more than {_LONGEST_INT} digits cannot be read back")
        return value
    # A Decimal would be stored as a text, "NaN" too; refused like a float's, since both come of the same mistake.
    if (kind is float and not math.isfinite(value)) or (kind is Decimal and not value.is_finite()):
        raise _bad(path, f"{Decimal(value)} is not JSON")
    if kind is float:
        return value
    parts = _parts(value)
    if parts is None:
        try:
            scalar = msgspec.to_builtins(value)
        except TypeError:
            raise _bad(path, f"{kind.__name__} has no JSON form") from None
        return _plain(scalar, path, depth)
    if depth == DEEPEST:
        raise _bad(path, f"more than {DEEPEST} levels")
    if not isinstance(parts, Mapping):
        items = []
        for index, item in enumerate(parts):
            items.append(_plain(item, (path, index), depth + 1))
        return sorted(items, key=msgspec.json.encode) if isinstance(value, set | frozenset) else items
    members = {}
    for key, item in parts.items():
        if not isinstance(key, str):
            raise _bad((path, key), f"a key of type {type(key).__name__} is not text")
        members[_text(key, (path, key), "key")] = _plain(item, (path, key), depth + 1)
    return members


def _parts(value: Any) -> Mapping[Any, Any] | Iterable[Any] | None:
    """The parts of a value: a mapping for an object, another iterable for an array, None for a scalar."""
    if isinstance(value, _WHOLES):
        return value
    if isinstance(value, Struct):
        return _fields_set(value)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    elif attributes := getattr(type(value), "__attrs_attrs__", None):
        names = [field.name for field in attributes if not field.name.startswith("_")]  # as msgspec does
    else:
        return None
    return {name: item for name in names if (item := getattr(value, name, UNSET)) is not UNSET}


def _fields_set(value: Struct) -> dict[str, Any] | list[Any]:
    """The tag and fields under their JSON names, without those that hold their defaults."""
    config, fields = value.__struct_config__, _fields(type(value))
    if config.array_like:  # a place is a name here, so none can be left out
        return [config.tag][: config.tag is not None] + [getattr(value, name, UNSET) for name, _, _ in fields]
    members: dict[str, Any] = {} if config.tag is None else {str(config.tag_field): config.tag}
    for name, json_name, default in fields:
        item = getattr(value, name, UNSET)
        if item is UNSET or item is default or (type(item) is type(default) and item == default):
            continue  # the type too: True is not the default 1
        members[json_name] = item
    return members


@functools.cache
def _fields(kind: type[Struct]) -> list[tuple[str, str, Any]]:
    """(name, JSON name, default) of each field."""
    found = []
    for field in msgspec.structs.fields(kind):
        default = field.default
        if field.default_factory is not NODEFAULT:
            made = field.default_factory()
            default = made if isinstance(made, list | dict | set | Struct) else NODEFAULT
        found.append((field.name, field.encode_name, default))
    return found


def _text(text: str, path: _Path, what: str) -> str:
    if found := _UNSTORABLE.search(text):
        raise _bad(path, f"a {what} with \\u{ord(found[0]):04x} cannot be stored")
    return text


def _bad(path: _Path, why: str) -> BadArgs:
    steps = ""
    while not isinstance(path, str):
        path, key = path
        try:
            shown = f"[{reprlib.repr(key)}]"
        except ValueError:  # an int too long to print
            shown = "[int]"
        steps = (f".{key}" if isinstance(key, str) and key.isidentifier() and len(key) <= 60 else shown) + steps
    return BadArgs(f"{path}{steps if len(steps) <= 200 else f'{steps[:100]}…{steps[-100:]}'}: {why}")


def args_type(handler: Callable[..., Any]) -> Any:
    """What the second argument of `handler` is annotated with; dict where it is not, or with Any or object.

    Raises TypeError for an annotation that cannot be resolved or that msgspec does not decode into.
    """
    function = function_of(handler)
    name = getattr(function, "__qualname__", type(function).__name__)
    try:
        hint = _annotation(handler, function)
    except (NameError, AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise TypeError(f"handler {name}: the type of args must stand at its module's top: {error}") from None
    if isinstance(msgspec.inspect.type_info(hint), msgspec.inspect.CustomType):
        raise TypeError(f"handler {name}: args cannot be decoded into {hint!r}; take a dict or a Struct")
    return hint


def decoder_for(handler: Callable[..., Any]) -> Callable[[str | bytes], Any]:
    """A function from a row's args to what `handler` takes as its second argument, by its args_type().

    An int stays exact at any size; a float of 1e16 and above was made an int by jsonb, so a handler that wants
    floats names the type.

    Raises TypeError as args_type() does. The function raises msgspec.ValidationError: "Expected `int`, got `str`
    - at `$.id`".
    """
    if id(handler) in _prepared:
        return _prepared[id(handler)][1]
    decoder = msgspec.json.Decoder(args_type(handler))

    def decode(text: str | bytes) -> Any:
        try:
            return decoder.decode(text)
        except RecursionError:  # from a row that another writer made
            raise msgspec.ValidationError("args are nested too deeply") from None

    return decode


def prepare_decoders(handlers: Iterable[Callable[..., Any]]) -> None:
    """Make them before the fork, for all children: what reads annotations copies 0.5 MB of shared memory to run."""
    for handler in handlers:
        with suppress(TypeError):  # its jobs will tell
            _prepared[id(handler)] = handler, decoder_for(handler)


def _annotation(handler: Callable[..., Any], function: Any) -> Any:
    """The type of the second positional parameter of `handler`, whose code is `function`; dict if it is not told."""
    parameters = inspect.signature(handler).parameters.values()
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if len(positional) < 2 or positional[1].annotation is inspect.Parameter.empty:
        return dict

    def args_only() -> None: ...  # resolved alone: the other parameters' types may exist for the type checker only

    args_only.__annotations__ = {"args": positional[1].annotation}
    closure = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
    names = getattr(function, "__globals__", {})
    hint = typing.get_type_hints(args_only, names, dict(closure), include_extras=True)["args"]
    return dict if hint in (Any, object) else hint


def function_of(handler: Any) -> Any:
    """The function that was written: below partial, functools.wraps, a method, an instance with __call__."""
    if isinstance(handler, functools.partial):
        return function_of(handler.func)
    if inspect.ismethod(handler):
        return function_of(handler.__func__)
    if hasattr(handler, "__wrapped__"):
        return function_of(handler.__wrapped__)
    call = inspect.getattr_static(type(handler), "__call__", None)
    return function_of(call) if inspect.isfunction(call) else handler
