"""Args, on their way into a row and out of it, without a database."""

import contextlib
import dataclasses
import enum
import functools
import json
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
import pytest

from supervisor.args import DEEPEST, decoder_for, encode
from supervisor.errors import BadArgs


class Plan(enum.Enum):
    TEAM = "team"


class Key(enum.StrEnum):
    REGION = "region"


class Colour(int):
    pass


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0
    label: str | msgspec.UnsetType = msgspec.UNSET


class Address(msgspec.Struct):
    city: str = "Paris"
    lines: list[str] = []


class Person(msgspec.Struct, rename="camel"):
    first_name: str
    age: int | None = None
    vip: bool | int = 1
    address: Address = msgspec.field(default_factory=Address)
    tags: set[str] = msgspec.field(default_factory=set)
    origin: dict[str, int] = msgspec.field(default_factory=lambda: {"import": 1})
    seen_on: date = msgspec.field(default_factory=date.today)
    note: str | msgspec.UnsetType = msgspec.UNSET


class Circle(msgspec.Struct, tag="circle", tag_field="kind"):
    radius: float = 1.0


class Pair(msgspec.Struct, array_like=True, tag=True):
    left: int = 0
    right: int = 0


def nested(levels: int) -> dict[str, Any]:
    """`levels` objects and arrays inside each other, in turn."""
    inner: Any = {}
    for level in range(levels - 1):
        inner = [inner] if level % 2 == 0 else {"a": inner}
    return inner if isinstance(inner, dict) else {"a": inner[0]}


def cycle() -> dict[str, Any]:
    whole: dict[str, Any] = {"list": []}
    whole["list"].append(whole)
    return whole


REFUSED: list[tuple[Any, str]] = [
    ({"people": [0, 1, 2, {"age": float("nan")}]}, "args.people[3].age: NaN is not JSON"),
    ({"a": float("inf")}, "args.a: Infinity is not JSON"),
    ({"a": (1, float("-inf"))}, "args.a[1]: -Infinity is not JSON"),
    ({"a": Decimal("NaN")}, "args.a: NaN is not JSON"),
    ({"a": Decimal("sNaN")}, "args.a: sNaN is not JSON"),
    ({"a": Decimal("-Infinity")}, "args.a: -Infinity is not JSON"),
    ({"a": "x\0y"}, "args.a: a text with \\u0000 cannot be stored"),
    ({"a": "\ud800"}, "args.a: a text with \\ud800 cannot be stored"),
    ({"a": {"x\0y": 1}}, r"args.a['x\x00y']: a key with \u0000 cannot be stored"),
    ({"a": {"\udfff": 1}}, r"args.a['\udfff']: a key with \udfff cannot be stored"),
    ({"a": {1: 2}}, "args.a[1]: a key of type int is not text"),
    ({"a": {None: 2}}, "args.a[None]: a key of type NoneType is not text"),
    ({"a": {10**5000: 2}}, "args.a[int]: a key of type int is not text"),
    ({date(2026, 1, 2): 2}, "args[datetime.date(2026, 1, 2)]: a key of type date is not text"),
    ({"a": 10**4300}, "args.a: an int of more than 4300 digits cannot be read back"),
    ({"a": -(10**4300)}, "args.a: an int of more than 4300 digits cannot be read back"),
    ({"a": object()}, "args.a: object has no JSON form"),
    ({"a": Colour(1)}, "args.a: Colour has no JSON form"),
    ({"a": [msgspec.UNSET]}, "args.a[0]: UnsetType has no JSON form"),
    ({"a b": {"": {"x" * 99: float("nan")}}}, "args['a b'][''][" + "'xxxxxxxxxxxx...xxxxxxxxxxxxx']: NaN is not JSON"),
    ({"a": {"x" * 50: {"y" * 50: {"z" * 50: {"w" * 50: float("nan")}}}}}, f".{'w' * 50}: NaN is not JSON"),
    ({"point": Point(float("nan"))}, "args.point.x: NaN is not JSON"),
    (Person(first_name="\0"), "args.firstName: a text with \\u0000 cannot be stored"),
    (Person("Ann", address=Address(lines=["", "\0"])), "args.address.lines[1]: a text with \\u0000 cannot be stored"),
    ({"a": Pair(10**4300)}, "args.a[1]: an int of more than 4300 digits cannot be read back"),
    (nested(DEEPEST + 1), "more than 100 levels"),
    (nested(200), "more than 100 levels"),
    (nested(100_000), "more than 100 levels"),
    (cycle(), "more than 100 levels"),
    ([], "args: list is no JSON object; give a dict or a Struct"),
    ("{}", "args: str is no JSON object; give a dict or a Struct"),
    (1.5, "args: float is no JSON object; give a dict or a Struct"),
    (Pair(), "args: Pair is no JSON object; give a dict or a Struct"),
]


@pytest.mark.parametrize(("args", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_jsonb_cannot_hold_is_refused_with_its_path(args: Any, message: str) -> None:
    """FAULTS 25."""
    with pytest.raises(BadArgs) as refusal:
        encode(args)
    text = str(refusal.value)
    assert text.endswith(message)
    assert text.startswith("args")
    assert len(text) < 300 and text.isprintable()


def test_a_hundred_levels_are_accepted() -> None:
    assert json.loads(encode(nested(DEEPEST))) == nested(DEEPEST)


def test_a_caller_deep_in_its_stack_gets_badargs_and_no_recursion_error() -> None:
    def descend(left: int) -> None:
        if left:
            descend(left - 1)
        else:
            encode(nested(DEEPEST))

    frame, depth = sys._getframe(), 0
    while frame.f_back:
        frame, depth = frame.f_back, depth + 1
    with pytest.raises(BadArgs, match="too deeply for the stack"):
        descend(sys.getrecursionlimit() - depth - 60)


def test_no_args_are_an_empty_object() -> None:
    assert encode(None) == encode({}) == "{}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (10**4299, str(10**4299)),
        (True, "true"),
        (None, "null"),
        ("é\n😀", '"é\\n😀"'),
        (1.0, "1.0"),
        (Decimal("1.10"), '"1.10"'),
        (datetime(2026, 10, 21, 12, 30, tzinfo=UTC), '"2026-10-21T12:30:00Z"'),
        (date(2026, 10, 21), '"2026-10-21"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Plan.TEAM, '"team"'),
        (b"\0\xff", '"AP8="'),
        ((1, (2,)), "[1,[2]]"),
        (MappingProxyType({"b": 1}), '{"b":1}'),
        ({Key.REGION: 1}, '{"region":1}'),
        (Point(1.5), '{"x":1.5,"y":0}'),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_written_as_msgspec_writes_them(value: Any, text: str) -> None:
    assert encode({"a": value}) == f'{{"a":{text}}}'


def test_equal_sets_give_equal_texts_whatever_their_order() -> None:
    numbers, reverse = set[Any](), set[Any]()
    numbers.update([0, 8, 16, "b", "a", ("x", frozenset({8, 0}))])
    reverse.update([("x", frozenset({0, 8})), "a", "b", 16, 8, 0])
    assert encode({"a": numbers}) == encode({"a": reverse})


def test_a_struct_gives_only_what_was_set() -> None:
    today = f'"seenOn":"{date.today()}"'
    assert encode(Person("Ann")) == f'{{"firstName":"Ann",{today}}}'
    changed = Person("Ann", age=0, address=Address(city="Rome"), tags={"x"}, origin={}, note="n")
    assert json.loads(encode(changed)) == {
        "firstName": "Ann",
        "age": 0,
        "address": {"city": "Rome"},
        "tags": ["x"],
        "origin": {},
        "seenOn": str(date.today()),
        "note": "n",
    }


def test_a_scalar_that_a_factory_made_is_kept_since_the_handler_would_make_another() -> None:
    assert "seenOn" in encode(Person("Ann", seen_on=date.today()))


def test_true_is_not_the_default_one() -> None:
    assert json.loads(encode(Person("Ann", vip=True)))["vip"] is True


def test_structs_inside_dicts_lists_and_dataclasses_leave_their_defaults_out_too() -> None:
    @dataclasses.dataclass
    class Box:
        inner: Address

    args = {"one": Address(), "many": [Address("Rome"), Address()], "box": Box(Address())}
    assert json.loads(encode(args)) == {"one": {}, "many": [{"city": "Rome"}, {}], "box": {"inner": {}}}


def test_a_structs_tag_is_always_written() -> None:
    assert encode(Circle()) == '{"kind":"circle"}'
    assert encode({"a": Circle(2.0), "b": Pair(1)}) == '{"a":{"kind":"circle","radius":2.0},"b":["Pair",1,0]}'


@pytest.mark.parametrize("args", [Person("Ann", age=3, tags={"a", "b"}), Circle(), Circle(3.0), Address("Rome", ["x"])])
def test_a_struct_comes_back_equal(args: msgspec.Struct) -> None:
    def handler(ctx: object, args: Any) -> str:
        return "ok"

    handler.__annotations__["args"] = type(args)
    assert decoder_for(handler)(encode(args)) == args


def test_a_megabyte_takes_a_fraction_of_a_second() -> None:
    people = [{"id": number, "name": f"person {number}", "score": number / 3, "ok": True} for number in range(15_000)]
    begun = time.process_time()
    text = encode({"people": people})
    assert len(text) > 900_000
    assert time.process_time() - begun < 1


# Handlers, in the shapes that a worker may declare.


def plain(ctx: object, args: Person) -> str:
    return "ok"


def quoted(ctx: "OnlyForTheChecker", args: "Annotated[Person, 'x']", *, db: object = None) -> str:  # type: ignore[name-defined]  # noqa: F821
    return "ok"


def extra_first(client: object, ctx: object, args: Person) -> str:
    return "ok"


def keyword(ctx: object, args: Person, *, client: object) -> str:
    return "ok"


@functools.wraps(keyword)
def wrapped(*args: Any, **kwargs: Any) -> Any:
    return keyword(*args, **kwargs)


class Handlers:
    def method(self, ctx: object, args: "Person") -> str:
        return "ok"

    def __call__(self, ctx: object, args: "Person") -> str:
        return "ok"


def local() -> Callable[..., Any]:
    class Local(msgspec.Struct):
        first_name: str = msgspec.field(name="firstName")

    def handler(ctx: object, args: "Local") -> str:
        return str(Local)  # the use that keeps Local in the closure

    return handler


async def asynchronous(ctx: object, args: Person) -> str:
    return "ok"


TYPED: list[Callable[..., Any]] = [
    plain,
    quoted,
    functools.partial(extra_first, object()),
    functools.partial(functools.partial(keyword), client=1),
    wrapped,
    functools.partial(wrapped, client=1),
    Handlers().method,
    Handlers(),
    functools.partial(Handlers()),
    local(),
    asynchronous,
]


@pytest.mark.parametrize("handler", TYPED)
def test_args_come_in_the_type_that_the_handler_is_annotated_with(handler: Callable[..., Any]) -> None:
    decode = decoder_for(handler)
    assert decode('{"firstName": "Ann"}').first_name == "Ann"
    with pytest.raises(msgspec.ValidationError, match=r"Expected `str`, got `int` - at `\$.firstName`"):
        decode(b'{"firstName": 1}')


def bare(ctx: object, args) -> str:  # type: ignore[no-untyped-def]
    return "ok"


def of_any(ctx: object, args: Any) -> str:
    return "ok"


def of_object(ctx: object, args: "object") -> str:
    return "ok"


def of_dict(ctx: object, args: dict[str, Any]) -> str:
    return "ok"


def of_mapping(ctx: object, args: Mapping[str, object]) -> str:
    return "ok"


def of_rest(*rest: int) -> str:
    return "ok"


@pytest.mark.parametrize("handler", [bare, of_any, of_object, of_dict, of_mapping, of_rest])
def test_without_a_type_args_are_a_plain_dict_decoded_exactly(handler: Callable[..., Any]) -> None:
    decode = decoder_for(handler)
    given = {
        "a": [
            2**63,
            2**64,
            -(2**64),
            10**400,
            0.1,
            1e-320,
            True,
            None,
            {"": "é😀"},
        ]
    }
    found = decode(json.dumps(given))
    assert found == given and repr(found) == repr(given) and type(found) is dict
    with pytest.raises(msgspec.ValidationError, match="Expected `object`, got `array`"):
        decode("[]")


def test_args_nested_too_deeply_by_another_writer_are_a_mismatch() -> None:
    with pytest.raises(msgspec.ValidationError, match="nested too deeply"):
        decoder_for(bare)('{"a":' * 100_000 + "1" + "}" * 100_000)


def test_constraints_in_annotations_hold() -> None:
    def handler(ctx: object, args: dict[str, Annotated[int, msgspec.Meta(gt=0)]]) -> str:
        return "ok"

    with pytest.raises(msgspec.ValidationError, match=r"Expected `int` >= 1 - at `\$\[\.\.\.\]`"):
        decoder_for(handler)('{"a": 0}')


def test_an_annotation_that_cannot_be_resolved_is_a_type_error_that_names_the_handler() -> None:
    def handler(ctx: object, args: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821
        return "ok"

    with pytest.raises(TypeError, match=r"handler .*handler: the type of args .*'Nowhere' is not defined"):
        decoder_for(functools.partial(handler))


def test_a_type_that_msgspec_does_not_know_is_a_type_error() -> None:
    def handler(ctx: object, args: contextlib.ExitStack) -> str:
        return "ok"

    with pytest.raises(TypeError, match=r"cannot be decoded into .*ExitStack"):
        decoder_for(handler)
