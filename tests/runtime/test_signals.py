"""Requests to stop: what each context makes of them, and that a burst of them is one."""

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


def burst(number=signal.SIGINT, times=5):
    for _ in range(times):
        signal.raise_signal(number)


@pytest.mark.parametrize("number", ASKING_TO_STOP)
def test_the_first_is_noted_and_the_second_raises(number):
    with pytest.raises(Interrupted) as caught, Signals() as asked:
        signal.raise_signal(number)
        assert asked.received == number
        signal.raise_signal(number)
    assert caught.value.exit_code == 128 + number


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


def test_a_request_after_a_burst_raises_again(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    with Signals(at_once=True):
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                burst()
            burst()
            now[0] += signals.BURST


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


def test_what_must_be_finished_is_and_then_the_signal_takes_its_effect(handlers):
    with finishing() as asked:
        asked.may_abort = False
        burst(signal.SIGTERM)
    assert handlers == [signal.SIGTERM]
    with finishing():
        pass
    assert handlers == [signal.SIGTERM]
