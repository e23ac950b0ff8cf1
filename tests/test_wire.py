"""Frames between a target process and its supervisor: round trips, pieces, and what is refused."""

import os
import struct
import threading
from collections.abc import Callable, Iterator
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import scenarios

from schedfuzz.corpus.trace import KINDS, Output, Scheduled, Step, Trace, Violation
from schedfuzz.workers.target import wire

counts = st.integers(0, 10**6)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
pairs = st.lists(st.tuples(counts, counts), max_size=3).map(tuple)
numbers = st.lists(counts, max_size=3).map(tuple)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    paths = st.sampled_from(("new", "running", "resumed"))
    shares = st.builds(Scheduled, counts, paths, *[counts] * 5)
    words = st.lists(texts, max_size=2).map(tuple)
    steps = st.builds(
        Step, counts, st.lists(shares, max_size=3).map(tuple), numbers, numbers, pairs,
        counts, counts, counts, words,
    )  # fmt: skip
    violations = st.builds(
        Violation, st.sampled_from(KINDS), texts, texts, counts, st.none() | counts, texts, texts
    )
    outputs = st.builds(Output, counts, numbers, st.none() | texts)
    return Trace(
        draw(st.sampled_from(("finished", "violated", "rejected", "unsupported", "infra"))),
        *(draw(st.lists(items, max_size=3).map(tuple)) for items in (steps, outputs, violations)),
        draw(texts),
        draw(st.binary(max_size=50)),
    )


def messages() -> st.SearchStrategy[wire.Message]:
    return st.one_of(
        st.builds(wire.Job, counts, scenarios(3), st.booleans()),
        st.builds(wire.Hello, texts, counts),
        st.builds(wire.WorkerUp, counts),
        st.builds(wire.WorkerGone, counts, counts, counts),
        st.builds(wire.Failed, texts),
        st.builds(wire.Ran, counts, traces()),
    )


def sent(*items: wire.Message) -> bytes:
    """Return what `send` writes for small messages."""
    reader, writer = os.pipe()
    for item in items:
        wire.send(writer, item)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        return file.read()


def received(data: bytes) -> Iterator[wire.Message]:
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    try:
        while (message := wire.receive(reader)) is not None:
            yield message
    finally:
        os.close(reader)


def test_every_message_has_a_strategy() -> None:
    """One that is added to the union must be added to the round trip."""
    assert len(get_args(wire.Message)) == 6


@settings(max_examples=60)
@given(st.lists(messages(), min_size=1, max_size=3))
def test_frames_round_trip(items: list[wire.Message]) -> None:
    data = sent(*items)
    assert list(received(data)) == items
    buffer = bytearray(data)
    assert [wire.take(buffer) for _ in items] == items
    assert (wire.take(buffer), buffer) == (None, bytearray())


@settings(max_examples=30)
@given(st.lists(messages(), min_size=1, max_size=3), st.integers(1, 7))
def test_frames_in_pieces_come_out_whole_and_in_order(items, size: int) -> None:
    data = sent(*items)
    buffer, out = bytearray(), []
    for start in range(0, len(data), size):
        buffer += data[start : start + size]
        while (message := wire.take(buffer)) is not None:
            out.append(message)
    assert out == items


@pytest.mark.parametrize("kept", [0, 1, 3, 4, 7])
def test_a_pipe_that_ends_within_a_frame_is_at_its_end(kept: int) -> None:
    data = sent(wire.Failed("no room"))
    assert list(received(data[:kept])) == []
    assert wire.take(bytearray(data[:kept])) is None


def test_a_frame_larger_than_the_pipe_arrives_whole() -> None:
    item = wire.Ran(3, Trace("finished", coverage=os.urandom(3 << 20)))
    reader, writer = os.pipe()
    thread = threading.Thread(target=wire.send, args=(writer, item))
    thread.start()
    assert wire.receive(reader) == item
    thread.join()
    os.close(reader)
    with pytest.raises(OSError):
        wire.send(writer, item)
    os.close(writer)


def take(data: bytes) -> object:
    return wire.take(bytearray(data))


def receive(data: bytes) -> object:
    return list(received(data))


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


@pytest.mark.parametrize("read", [take, receive])
@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", wire.MAX_FRAME + 1),
        b"INFO starting up\n",  # whatever else writes to the pipe: its length is absurd
        frame(b""),
        frame(b"\xc1"),
        frame(msgspec.msgpack.encode({"type": "other"})),
        frame(msgspec.msgpack.encode({"type": "up", "pid": "seven"})),
        frame(msgspec.msgpack.encode({"type": "up"})),
        frame(msgspec.msgpack.encode({"type": "up", "pid": 7}) + b"more"),
    ],
)
def test_a_broken_frame_is_a_value_error(read: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(ValueError):
        read(data)


def test_the_longest_frame_is_waited_for() -> None:
    assert take(struct.pack(">I", wire.MAX_FRAME) + b"begin") is None
