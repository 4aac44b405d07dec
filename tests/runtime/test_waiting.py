"""Waiting for descriptors: who waits wakes at once, or after no more than was asked."""

import os
import select

import pytest

from esvi_shm.runtime import waiting


@pytest.fixture
def bells():
    made = [os.eventfd(0) for _ in range(3)]
    yield made
    for bell in made:
        os.close(bell)


@pytest.mark.parametrize("seconds", [0.0, 0.0003, 0.01, 60.0])
@pytest.mark.parametrize("most", [waiting.MOST_SELECT, 0])
def test_what_can_be_read_is_told_at_once(bells, seconds, most, monkeypatch):
    monkeypatch.setattr(waiting, "MOST_SELECT", most)
    os.eventfd_write(bells[1], 1)
    assert waiting.readable(bells, seconds) == [bells[1]]


def test_short_waits_are_not_rounded_up_to_milliseconds(bells, monkeypatch):
    asked = []

    class Poll:
        def register(self, *_):
            pass

        def poll(self, milliseconds):
            asked.append(("poll", milliseconds))
            return []

    def take(descriptors, _, __, seconds):
        asked.append(("select", seconds))
        return [], [], []

    monkeypatch.setattr(select, "poll", Poll)
    monkeypatch.setattr(select, "select", take)
    for seconds in (0.0, 0.0003, 0.001, 0.05):
        assert waiting.readable(bells, seconds) == []
    assert asked == [("poll", 0.0), ("select", 0.0003), ("poll", 1.0), ("poll", 50.0)]
