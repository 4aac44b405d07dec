"""The protocol message by message: what a node that is wrong, gone or silent is told as."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esvi_shm.errors import ParameterError, PeerError
from esvi_shm.transports.protocol import Protocol
from esvi_shm.transports.protocol.agreement import Hello
from esvi_shm.transports.protocol.frames import Frame, Kind
from esvi_shm.transports.protocol.hops import Trip
from esvi_shm.transports.protocol.machine import SILENCE
from esvi_shm.transports.protocol.orders import Order
from tests.transports.simulator import SimulatedRows

NAMES = ["node 0 (a:1)", "node 1 (b:2)", "node 2 (c:3)"]
HELLO = Hello(3, bytes(32), "1.0")


def protocol(rank=0, hello=HELLO):
    return Protocol(rank, NAMES, hello)


def begun(rank=0):
    found = protocol(rank)
    found.begin(SimulatedRows(7, range(rank, 7, 3)), [[0, 1, 2]] * 7)
    found.hops.release(2)
    return found


def say(to, source, kind, body=b"", epoch=0):
    to.receive(source, Frame(kind, epoch, memoryview(body)))


@pytest.mark.parametrize(
    "sizes, spare",
    [
        ([10] * 8, 3),  # 2 of its own and 3 of others of 8: 2.5 / 4
        ([10, 10, 10, 10, 10, 10, 10, 11], 2),  # with 3 it would be 51 of 81
        ([9, 10, 10, 10, 9, 10, 10, 10], 3),
        ([1, 9, 9, 9, 1, 9, 9, 9], 3),
        ([9, 9, 9, 1, 9, 9, 9, 1], 2),
        ([20, 5, 5, 5, 5, 5, 5, 5], 2),
        ([1, 4, 4, 4, 1, 4, 4, 1], 3),
        ([50, 1, 1, 1, 50, 1, 1, 1], 2),  # fewer could not move
    ],
)
def test_blocks_of_others_find_places_by_their_sizes(sizes, spare):
    class Rows(SimulatedRows):
        def most(self, block):
            return sizes[block]

    node = Protocol(0, ["node"] * 4, Hello(4, bytes(32), "1.0"))
    node.begin(Rows(8, [0, 4]), [[0, 1, 2, 3]] * 8)
    assert node.hops.spare == spare


def test_nodes_that_agree():
    node = protocol()
    assert not node.is_agreed
    for source in (1, 2):
        say(node, source, Kind.HELLO, HELLO.pack())
    assert node.is_agreed


@pytest.mark.parametrize(
    "other, message",
    [
        (Hello(3, bytes(32), "0.9"), r"node 2 \(c:3\) has esvi_shm 0.9, node 0 \(a:1\) 1.0"),
        (Hello(4, bytes(32), "1.0"), r"node 2 \(c:3\) counts the nodes as 4, node 0 \(a:1\) 3"),
        (Hello(3, b"\1" * 32, "1.0"), r"node 2 \(c:3\) was started with other options .* 0101"),
    ],
)
def test_a_node_that_differs_is_named_by_every_node(other, message):
    for rank, hello in enumerate([HELLO, HELLO, other]):
        node = protocol(rank, hello)
        for source in {0, 1, 2} - {rank}:
            say(node, source, Kind.HELLO, [HELLO, HELLO, other][source].pack())
        with pytest.raises(PeerError, match=message):
            _ = node.is_agreed


def test_an_error_names_the_node_and_its_reason():
    with pytest.raises(PeerError, match=r"node 1 \(b:2\) ended the fit: disk full") as caught:
        say(protocol(), 1, Kind.ERROR, b"disk full")
    assert caught.value.exit_code == 1


def test_a_reason_is_cut():
    node = protocol()
    node.part("x" * 10**6)
    assert sum(map(len, node.outbox.next(1).parts)) == 2000


def test_a_reason_of_any_bytes_is_told():
    node = protocol()
    node.part("bad\udcff.mtx: no such file")
    body = b"".join(node.outbox.next(1).parts)
    with pytest.raises(PeerError, match=r"node 0 .* ended the fit: bad.udcff.mtx: no such file"):
        say(protocol(1), 0, Kind.ERROR, body)


def test_a_silent_node_is_named_by_time_that_this_node_looked():
    node = begun()
    for source in (1, 2):
        say(node, source, Kind.HELLO, HELLO.pack())
    node.tick(0.0)
    for now in range(1, int(SILENCE)):
        say(node, 2, Kind.BEAT)
        node.tick(float(now))
    node.tick(1000.0)  # away for long: that says nothing of the others
    say(node, 2, Kind.BEAT)
    with pytest.raises(PeerError, match=r"node 1 \(b:2\) has said nothing for 10 s"):
        node.tick(1001.0)


def test_a_node_that_has_yet_to_come_is_not_silent():
    node = begun()
    for now in range(100):
        node.tick(float(now))
    assert node.unheard == [1, 2]


def test_signs_of_life_are_given_every_second():
    node = protocol()
    beats = 0
    for tenth in range(100):
        node.tick(tenth / 10)
        while (message := node.outbox.next(1)) is not None:
            beats += message.kind == Kind.BEAT
    assert 9 <= beats <= 10


def test_a_lost_connection_is_named_unless_it_said_goodbye():
    node = begun()
    with pytest.raises(PeerError, match=r"node 2 \(c:3\) is gone"):
        node.lost(2)
    say(node, 1, Kind.BYE)
    node.lost(1)
    with pytest.raises(PeerError, match=r"node 1 \(b:2\) has left the fit while it was needed"):
        node.tick(0.0)


def test_what_comes_before_the_fit_begins_is_kept_and_is_bounded():
    node, other = protocol(), begun(1)
    other.tick(0.0)
    while (message := other.outbox.next(0)) is not None:
        if message.kind not in (Kind.HELLO, Kind.BEAT):
            say(node, 1, message.kind, b"".join(map(bytes, message.parts)), message.epoch)
    node.begin(SimulatedRows(7, range(0, 7, 3)), [[0, 1, 2]] * 7)
    assert node.hops.statuses[1].epoch == 1
    with pytest.raises(PeerError, match="before the fit has begun"):
        early = protocol()
        for _ in range(1000):
            say(early, 1, Kind.STATUS)


@given(
    st.sampled_from(list(Kind)),
    st.integers(0, 2),
    st.binary(max_size=80),
    st.sampled_from([1, 2]),
)
def test_no_body_raises_anything_but_the_protocols_own_errors(kind, epoch, body, source):
    node = begun()
    try:
        say(node, source, kind, body, epoch)
        node.tick(0.0)
    except PeerError:
        pass


@given(
    st.sampled_from([Kind.BLOCK, Kind.SHARE, Kind.PART, Kind.TURN]),
    st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6),
)
def test_no_numbers_make_a_node_take_memory(kind, numbers):
    node = begun()
    body = np.array(numbers, np.uint64).tobytes()
    for cut in range(16, 48):
        try:
            say(node, 1, kind, body[:cut], 1)
        except PeerError:
            pass
    assert sum(len(part) for _, part in node.collectives._parts.values()) < 1000


def test_blocks_end_with_their_owner_in_the_last_pass():
    order = Order("lap", 3, 4)
    last = [order.of(b, 0, True, [0, 1, 2, 3], lambda j: 0)[-1] for b in range(40)]
    assert last == [b % 4 for b in range(40)]
    firsts = {order.of(b, 0, False, [0, 1, 2, 3], lambda j: 0)[0] for b in range(40)}
    assert firsts == {0, 1, 2, 3}
    again = [Order("lap", 3, 4).of(7, 5, False, [0, 2, 3], lambda j: 0) for _ in range(2)]
    assert again[0] == again[1] and sorted(again[0]) == [0, 2, 3]


def test_balanced_goes_to_the_shortest_queue():
    order = Order("balanced", 3, 4)
    assert order.of(1, 0, False, [0, 2, 3], [9, 0, 4, 1].__getitem__) == [3, 2, 0]


def test_an_unknown_order_is_refused():
    with pytest.raises(ParameterError, match="route must be one of balanced, lap"):
        Order("random", 0, 2)


def test_what_was_sent_has_come_when_all_is_done():
    """The answer of its owner need not have come, and must not keep the next release waiting."""
    node = begun(rank=1)
    rows, hops = node.hops._rows, node.hops
    rows.hold(2)
    hops.trips[2] = trip = Trip(attempt=3)
    trip.state, trip.to = "sent", 2
    hops.receive_done(0, hops.epoch, b"\0")
    assert set(hops.trips) == rows.held == {1, 4}
