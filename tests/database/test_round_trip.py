"""Args: what goes into the column comes back as it was."""

import json
import random
import struct
from decimal import Decimal
from typing import Any

import msgspec
import psycopg
from psycopg.rows import TupleRow

from supervisor.args import decoder_for
from supervisor.enqueue import insert_many

Connection = psycopg.Connection[TupleRow]


def test_any_args_come_back_from_the_column_as_they_went_in(connection: Connection) -> None:
    def handler(ctx: object, args: dict[str, Any]) -> str:
        return "ok"

    decode, seeds = decoder_for(handler), range(300)
    given = [anything(random.Random(seed), 0) for seed in seeds]
    answers = insert_many(connection, [("test", "test.Ok", {"": value}) for value in given])
    found: dict[int, str] = dict(connection.execute("SELECT id, args::text FROM jobs").fetchall())
    for seed, job, value in zip(seeds, answers, given, strict=True):
        back = decode(found[job])[""]
        # As texts: 1, 1.0 and True are equal.
        assert json.dumps(back, sort_keys=True) == json.dumps(as_jsonb(value), sort_keys=True), f"seed {seed}"


def anything(draw: random.Random, depth: int) -> Any:
    kind = draw.randrange(7 if depth < 6 else 5)
    if kind == 0:
        return draw.choice([None, True, False, 0, 1, 1.0, -0.5, "", 2**63, 2**64 - 1, -(2**63) - 1])
    if kind == 1:
        return draw.randrange(-(10 ** draw.randrange(1, 400)), 10 ** draw.randrange(1, 400))
    if kind == 2:
        number: float = struct.unpack("d", draw.randbytes(8))[0]
        return number if number - number == 0 else draw.random()  # finite
    if kind in (3, 4):
        return word(draw)
    if kind == 5:
        return [anything(draw, depth + 1) for _ in range(draw.randrange(6))]
    return {word(draw): anything(draw, depth + 1) for _ in range(draw.randrange(6))}


def word(draw: random.Random) -> str:
    """Text of any code point but NUL and the surrogates."""
    ranges = [(1, 0x20), (0x20, 0x7F), (0x7F, 0x800), (0x800, 0xD800), (0xE000, 0x10000), (0x10000, 0x110000)]
    return "".join(chr(draw.randrange(*draw.choice(ranges))) for _ in range(draw.randrange(12)))


def as_jsonb(value: Any) -> Any:
    """`value` with jsonb's numbers: it writes out an exponent, so that a large float is read as an int."""
    if isinstance(value, float):
        exact = Decimal(msgspec.json.encode(value).decode())
        return int(exact) if int(exact.as_tuple().exponent) >= 0 else value
    if isinstance(value, list):
        return [as_jsonb(item) for item in value]
    return {key: as_jsonb(item) for key, item in value.items()} if isinstance(value, dict) else value


def test_a_struct_comes_back_equal_from_the_column(connection: Connection) -> None:
    def handler(ctx: object, args: Trip) -> str:
        return "ok"

    trips = [Trip(1e300), Trip(0.1, stops=[Stop("a"), Stop("b", {"x": -0.0})]), Trip(5e-324, to=None), Trip(2.0**63)]
    insert_many(connection, [("test", "test.Ok", trip) for trip in trips])
    found = connection.execute("SELECT args::text FROM jobs ORDER BY id").fetchall()
    assert [decoder_for(handler)(text) for (text,) in found] == trips


class Stop(msgspec.Struct):
    name: str
    data: dict[str, float] = {}


class Trip(msgspec.Struct):
    length: float
    stops: list[Stop] = []
    to: Stop | None = msgspec.field(default_factory=lambda: Stop("home"))
