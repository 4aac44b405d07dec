"""Requests to stop: what each context makes of them, and which belong together."""

import signal
import sys

import pytest

from esvi_shm.errors import Interrupted
from esvi_shm.runtime import signals
from esvi_shm.runtime.signals import ASKING_TO_STOP, Signals, finishing

HANDLED = (*ASKING_TO_STOP, signal.SIGALRM)


@pytest.fixture(autouse=True)
def handlers():
    """Handlers that only note, and are there again at the end."""
    before = {number: signal.getsignal(number) for number in HANDLED}
    noted = []
    ours = {number: (lambda number, frame: noted.append(number)) for number in HANDLED}
    for number, handler in ours.items():
        signal.signal(number, handler)
    yield noted
    found = {number: signal.getsignal(number) for number in HANDLED}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert found == ours
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert Signals._depth == 0


@pytest.fixture
def clock(monkeypatch):
    """What the handler takes for the time, in a list of one."""
    now = [100.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    return now


def burst(number=signal.SIGINT):
    """More than one request at once, each of them sent more than once."""
    for other in (number, number, *ASKING_TO_STOP, number):
        signal.raise_signal(other)


@pytest.mark.parametrize("number", ASKING_TO_STOP)
def test_the_first_is_noted_and_the_second_raises(number, clock):
    with pytest.raises(Interrupted) as caught, Signals() as asked:
        signal.raise_signal(number)
        assert asked.received == number
        clock[0] += 1.01 * signals.SAME
        signal.raise_signal(number)
    assert caught.value.exit_code == 128 + number


@pytest.mark.parametrize("number", ASKING_TO_STOP)
def test_the_same_again_at_once_is_one_request(number, clock):
    with Signals() as asked:
        for _ in range(3):
            signal.raise_signal(number)
            clock[0] += 0.3 * signals.SAME
    assert asked.received == number


def test_another_signal_is_another_request(clock):
    with pytest.raises(Interrupted) as caught, Signals():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert caught.value.exit_code == 128 + signal.SIGINT


def test_a_hangup_behind_a_term_is_the_same_request(clock):
    with Signals() as asked:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
    assert asked.received == signal.SIGTERM


def test_a_key_held_down_is_a_second_request_in_the_end(clock):
    """The window is that of the first: what repeats within it does not prolong it."""
    times = 0
    with pytest.raises(Interrupted), Signals():
        while True:
            signal.raise_signal(signal.SIGINT)
            times += 1
            clock[0] += 0.3 * signals.SAME
    assert times == 4


def test_the_same_again_is_one_request_when_the_next_context_has_the_word(clock, handlers):
    """A fit ends early, and the other half of what `timeout` sends comes only now."""
    with Signals(at_once=True):
        with Signals() as asked:
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        with Signals() as saving:
            signal.raise_signal(signal.SIGTERM)
        clock[0] += 1.01 * signals.SAME
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert (asked.received, saving.received) == (signal.SIGTERM, None)
    assert handlers == []


def test_what_was_finished_first_is_then_a_request_to_the_context_around(clock):
    with Signals() as around:
        with finishing() as asked:
            signal.raise_signal(signal.SIGTERM)
            assert around.received is None
        assert asked.received == around.received == signal.SIGTERM
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("number", ASKING_TO_STOP)
def test_at_once_the_first_raises(number):
    with pytest.raises(KeyboardInterrupt), Signals(at_once=True) as asked:
        signal.raise_signal(number)
    assert asked.received == number


@pytest.mark.parametrize("at_once", [False, True])
def test_a_burst_raises_once_through_all_contexts(at_once, handlers):
    cleaned = []
    with Signals(at_once=True):
        try:
            with Signals(at_once):
                try:
                    burst()
                finally:
                    burst()
                    cleaned.append("inner")
        except (Interrupted, KeyboardInterrupt):
            burst()
            cleaned.append("outer")
    assert cleaned == ["inner", "outer"]
    assert handlers == []


def test_a_request_after_a_burst_raises_again(clock):
    with Signals(at_once=True):
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                burst()
            burst()
            clock[0] += signals.BURST


def test_contexts_one_after_the_other_have_no_burst_in_common():
    for _ in range(3):
        with pytest.raises(Interrupted), Signals():
            burst()


def test_an_import_is_finished_before_the_signal_raises(tmp_path, monkeypatch):
    (tmp_path / "struck_module.py").write_text(
        "import signal\n"
        "signal.raise_signal(signal.SIGTERM)\n"
        "for _ in range(3): signal.raise_signal(signal.SIGALRM)\n"
        "whole = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    reached = []
    with pytest.raises(KeyboardInterrupt), Signals(at_once=True) as asked:
        import struck_module

        reached.append(struck_module.whole)
        signal.pause()
    assert reached == [True]
    assert asked.received == signal.SIGTERM


def test_a_signal_that_a_finaliser_swallowed_raises_later(capsys):
    class Finalised:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)
            reached.append("finaliser went on")

    class Broken:
        def __del__(self):
            raise LookupError("on purpose")

    reached, told, hook = [], [], sys.unraisablehook
    sys.unraisablehook = lambda about: told.append(about.exc_type)
    try:
        with pytest.raises(KeyboardInterrupt), Signals(at_once=True):
            Finalised()
            Broken()
            reached.append("and so did the work")
            signal.pause()
        assert sys.unraisablehook is not hook
    finally:
        sys.unraisablehook = hook
    assert reached == ["and so did the work"]
    assert told == [LookupError]


def test_nothing_is_told_of_what_a_signal_left_half_made(monkeypatch):
    class HalfMade:
        def __del__(self):
            raise AttributeError("on purpose")

    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda about: told.append(about.exc_type))
    with pytest.raises(KeyboardInterrupt), Signals(at_once=True):
        made = HalfMade()
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            del made
    assert told == []


def test_what_must_be_finished_is_and_then_the_signal_takes_its_effect(handlers):
    with finishing() as asked:
        asked.may_abort = False
        burst(signal.SIGTERM)
    assert handlers == [signal.SIGTERM]
    with finishing():
        pass
    assert handlers == [signal.SIGTERM]


def pending(monkeypatch):
    """A context around a command whose signal came within an import, and is to be tried again."""
    around = Signals(at_once=True)
    monkeypatch.setattr(around, "_is_importing", lambda frame: True)
    around.__enter__()
    signal.raise_signal(signal.SIGINT)
    signal.setitimer(signal.ITIMER_REAL, 0)  # the test says when
    monkeypatch.setattr(around, "_is_importing", lambda frame: False)
    return around


def test_what_came_within_an_import_does_not_cut_what_must_be_finished(monkeypatch):
    around, done = pending(monkeypatch), []
    try:
        with pytest.raises(KeyboardInterrupt):
            with finishing():
                signal.raise_signal(signal.SIGALRM)
                done.append("finished")
        assert done == ["finished"]
    finally:
        around.__exit__()


def test_nor_does_it_abort_a_fit_that_has_begun(monkeypatch):
    around = pending(monkeypatch)
    try:
        with Signals() as of_the_fit:
            signal.raise_signal(signal.SIGALRM)
            assert of_the_fit.received == signal.SIGINT  # as the first one that comes there
    finally:
        around.__exit__()
    assert Signals._innermost is None
