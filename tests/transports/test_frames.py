"""Frames, however a stream is cut, and whatever a stranger sends."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esvi_shm.transports.protocol import frames
from esvi_shm.transports.protocol.frames import (
    HEADER,
    MAC_BYTES,
    MOST_BODY,
    FrameError,
    Kind,
    Reader,
    Writer,
)

KEYS = st.sampled_from([None, b"k" * 32])
FRAMES = st.lists(
    st.tuples(st.sampled_from(list(Kind)), st.integers(0, 2**32 - 1), st.binary(max_size=300)),
    max_size=6,
)


def write(messages, key=None):
    writer = Writer(key)
    return b"".join(
        b"".join(writer.encode(kind, epoch, [body[:7], body[7:]])) for kind, epoch, body in messages
    )


def read(reader, *chunks):
    return [(f.kind, f.epoch, bytes(f.body)) for chunk in chunks for f in reader.feed(chunk)]


@given(FRAMES, KEYS)
def test_frames_come_out_as_they_went_in_whole_or_byte_by_byte(messages, key):
    data = write(messages, key)
    assert read(Reader(key), data) == messages
    assert read(Reader(key), *(data[i : i + 1] for i in range(len(data)))) == messages


@given(FRAMES, KEYS, st.data())
def test_frames_come_out_however_the_stream_is_cut(messages, key, data):
    stream = write(messages, key)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(Reader(key), *chunks) == messages


@given(FRAMES, KEYS)
def test_a_frame_that_has_only_begun_waits(messages, key):
    stream = write([*messages, (Kind.BEAT, 1, b"abc")], key)
    reader = Reader(key)
    assert read(reader, stream[:-1]) == messages
    assert read(reader, stream[-1:]) == [(Kind.BEAT, 1, b"abc")]


@given(st.binary(min_size=HEADER.size, max_size=200), KEYS)
def test_garbage_raises_only_the_protocols_own_error(data, key):
    reader = Reader(key)
    try:
        assert read(reader, data) == []
    except FrameError:
        pass
    assert len(reader._partial) <= len(data)


@given(FRAMES.filter(bool), st.data())
def test_a_changed_bit_is_found_by_the_mac(messages, data):
    stream = bytearray(write(messages, b"k" * 32))
    bit = data.draw(st.integers(0, 8 * len(stream) - 1))
    stream[bit // 8] ^= 1 << bit % 8
    reader = Reader(b"k" * 32)
    try:
        found = read(reader, bytes(stream))
    except FrameError:
        return
    # Of a length that became greater, the rest is still waited for; nothing false came out.
    assert len(found) < len(messages) and found == messages[: len(found)]


def test_a_long_length_is_refused_before_anything_is_kept():
    header = HEADER.pack(frames.MAGIC, frames.VERSION, Kind.BLOCK, MOST_BODY + 1, 0, 0)
    reader = Reader()
    with pytest.raises(FrameError, match=f"at most {MOST_BODY} bytes, got {MOST_BODY + 1}"):
        read(reader, header[:5], header[5:])
    assert len(reader._partial) <= HEADER.size


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"magic": b"HTTP"}, "must begin with"),
        ({"version": 2}, "must be of version 1, got 2"),
        ({"kind": 99}, "must be known, got 99"),
        ({"sequence": 5}, "frame 0 was due, got frame 5"),
    ],
)
def test_each_field_is_checked(changed, message):
    fields = {"magic": b"ESVI", "version": 1, "kind": 2, "length": 0, "epoch": 0, "sequence": 0}
    header = HEADER.pack(*{**fields, **changed}.values())
    with pytest.raises(FrameError, match=message):
        read(Reader(), header)


def test_frames_cannot_be_repeated_left_out_or_moved():
    one, two = Writer(b"k"), Writer(b"k")
    first = b"".join(one.encode(Kind.BEAT, 0, []))
    second = b"".join(one.encode(Kind.BYE, 0, []))
    reader = Reader(b"k")
    assert len(read(reader, first)) == 1
    with pytest.raises(FrameError, match="frame 1 was due, got frame 0"):
        read(reader, first)
    with pytest.raises(FrameError, match="frame 0 was due"):
        read(Reader(b"k"), second)
    with pytest.raises(FrameError, match="MAC"):
        read(Reader(b"other"), b"".join(two.encode(Kind.BEAT, 0, [])))


def test_a_reader_holds_one_frame_at_most():
    reader = Reader()
    big = b"".join(Writer().encode(Kind.BLOCK, 0, [bytes(MOST_BODY)]))
    for i in range(0, len(big) - 1, 1000):
        assert read(reader, big[i : min(i + 1000, len(big) - 1)]) == []
        assert len(reader._partial) <= HEADER.size + MAC_BYTES + MOST_BODY


def test_the_header_is_little_endian_and_of_fixed_size():
    assert HEADER.size == 24
    data = b"".join(Writer().encode(Kind.BEAT, 7, [b"x"]))
    assert struct.unpack("<4sHHIIQ", data[:24]) == (b"ESVI", 1, 2, 1, 7, 0)
