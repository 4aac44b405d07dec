"""Whole fits: what they end with, whatever the route, the storage and the number of workers."""

import numpy as np
import pytest

from esvi_shm.errors import BoundError, ParameterError
from esvi_shm.families import lda
from esvi_shm.families.lda import bound, likeness, repair
from esvi_shm.runtime import home
from esvi_shm.runtime.blocks import VISITS, WORK
from esvi_shm.runtime.record import Observer
from esvi_shm.runtime.routes import ROUTES
from esvi_shm.runtime.serial import SerialFit
from tests.families.lda.play import bound_noise, look, play
from tests.families.lda.test_recovery import farthest_topic
from tests.naive import bound_l, simulate
from tests.runtime.fits import COUNTS, TOPICS, with_threads

FOREVER = 10**6


def assert_right(ended, n_passes):
    ended.assert_consistent()
    ended.assert_passes_are_whole(n_passes)
    result = ended.result
    if ended.layout.config.route in ("lap", "ring"):
        assert result.work == n_passes * np.count_nonzero(COUNTS)
    gamma, lambda_ = look(ended.serial, COUNTS)[:2]
    wanted = bound_l(COUNTS, gamma, lambda_, result.learned.alpha, result.learned.eta)
    last = result.history[-1]
    assert last.elbo == pytest.approx(wanted, abs=bound_noise(COUNTS))
    assert last.elbo_f <= last.elbo + bound_noise(COUNTS)
    # It has learned something, and the H of every (shard, block) was left by its last visit.
    assert last.elbo_f > play(COUNTS, n_topics=3).bound().elbo + 20
    assert last.elbo - last.elbo_f < 20


@pytest.mark.parametrize("n_workers", [1, 2, 3])
@pytest.mark.parametrize("storage", ["margins", "full"])
@pytest.mark.parametrize("route", ROUTES)
def test_every_route_and_storage(threaded_fit, route, storage, n_workers):
    ended = threaded_fit(
        route=route, storage=storage, n_workers=n_workers, n_passes=20, evaluate_every=7
    )
    assert_right(ended, 20)
    assert [round(r.passes) for r in ended.result.history] == [7, 14, 20]


@pytest.mark.parametrize("residual", ["spread", "drop"])
@pytest.mark.parametrize("route", ROUTES)
def test_every_route_keeps_the_largest(threaded_fit, route, residual):
    ended = threaded_fit(
        route=route, storage="topk", topk=2, residual=residual, n_workers=3, n_passes=20,
        evaluate_every=7,
    )  # fmt: skip
    assert_right(ended, 20)


@pytest.mark.parametrize(
    ("route", "storage", "n_workers"), [("lap", "margins", 3), ("balanced", "full", 2)]
)
def test_with_true_processes(fit, route, storage, n_workers):
    ended = fit(route=route, storage=storage, n_workers=n_workers, n_passes=20)
    assert len(fit.pids) == n_workers
    assert_right(ended, 20)


@pytest.mark.slow
@pytest.mark.parametrize("n_workers", [1, 2, 3])
@pytest.mark.parametrize("storage", ["margins", "full"])
@pytest.mark.parametrize("route", ROUTES)
def test_every_route_and_storage_with_true_processes(fit, route, storage, n_workers):
    assert_right(fit(route=route, storage=storage, n_workers=n_workers, n_passes=20), 20)


@pytest.mark.parametrize("start", ["seeded", "scikit-learn", "random"])
def test_the_engine_starts_as_the_serial_fit_does(threaded_fit, start):
    ended = threaded_fit(start=start, n_passes=0)
    ended.assert_consistent()
    ended.assert_passes_are_whole(0)
    (record,) = ended.result.history
    serial = play(COUNTS, n_topics=3, n_workers=2, n_blocks=5, start=start)
    np.testing.assert_array_equal(ended.serial.gamma, serial.gamma)
    np.testing.assert_array_equal(ended.serial.lambda_, serial.lambda_)
    assert record[3:6] == serial.bound()


def bits(ended):
    """All that a fit ends with, as bytes."""
    seen = look(ended.serial, COUNTS)
    history = np.array([(r.passes, *r[3:6]) for r in ended.result.history])
    return [array.tobytes() for array in (*seen, history)]


OPTIONS = {"deterministic": True, "n_passes": 10, "evaluate_every": 4}


@pytest.mark.parametrize("storage", ["margins", "full"])
@pytest.mark.parametrize("route", ["lap", "ring"])
@pytest.mark.parametrize("n_workers", [1, 2, 3])
def test_deterministic_fits_repeat_to_the_bit(threaded_fit, route, storage, n_workers):
    options = {"route": route, "storage": storage, "n_workers": n_workers, **OPTIONS}
    first = threaded_fit(**options)
    assert_right(first, 10)
    for _ in range(4):
        assert bits(threaded_fit(**options)) == bits(first)
    assert bits(threaded_fit(**options, seed=1)) != bits(first)


def test_deterministic_fits_with_true_processes_repeat_to_the_bit(fit, monkeypatch):
    """What threads do, which repeats as above."""
    first = fit(**OPTIONS)
    assert len(fit.pids) == 2
    assert bits(first) == bits(with_threads(monkeypatch)(**OPTIONS))


def test_a_deterministic_pass_reads_the_pi_of_its_beginning(threaded_fit):
    options = {**OPTIONS, "evaluate_every": 1}
    one, two = (threaded_fit(**{**options, "n_passes": n}).arrays["parameters"] for n in (1, 2))
    assert (one["pi"] != one["pi_snapshot"]).all()
    np.testing.assert_array_equal(two["pi_snapshot"], one["pi"])


def test_a_deterministic_fit_with_one_worker_is_the_serial_schedule(threaded_fit):
    ended = threaded_fit(n_workers=1, route="ring", **OPTIONS)
    serial: SerialFit = play(COUNTS, n_topics=3, n_blocks=5)
    for pass_ in range(1, 11):
        serial.run_pass()
        if pass_ in (4, 8, 10):
            serial.bound()
    np.testing.assert_array_equal(ended.serial.gamma, serial.gamma)
    np.testing.assert_array_equal(ended.serial.lambda_, serial.lambda_)


def test_one_worker_and_more_reach_the_same_bound(threaded_fit):
    counts, _ = simulate(60, 30, 3, 60, seed=4)
    reached = [
        threaded_fit(counts, n_workers=n, n_passes=150, evaluate_every=0).result.history[-1].elbo
        for n in (1, 2, 3)
    ]
    assert np.ptp(reached) < 1e-3 * abs(reached[0])


def test_topics_are_recovered(threaded_fit):
    fits = [threaded_fit(n_passes=60, seed=seed, start="scikit-learn") for seed in range(2)]
    best = max(fits, key=lambda ended: ended.result.history[-1].elbo)
    assert farthest_topic(best.serial.lambda_, TOPICS) < 0.2


def test_it_stops_when_the_bound_rests(threaded_fit):
    ended = threaded_fit(n_passes=FOREVER, evaluate_every=1, tol=1e-3)
    assert ended.result.stopped == "tol"
    *_, before, last = ended.result.history
    assert abs(last.elbo - before.elbo) < 1e-3 * abs(before.elbo)
    assert len(ended.result.history) == ended.result.passes > 2
    ended.assert_consistent()


@pytest.mark.parametrize("deterministic", [False, True])
def test_it_stops_when_its_time_is_up(threaded_fit, deterministic):
    options = {"n_passes": FOREVER, "evaluate_every": 0, "max_time": 0.1}
    ended = threaded_fit(deterministic=deterministic, **options)
    assert ended.result.stopped == "max_time"
    assert 0 < ended.result.passes < FOREVER
    assert ended.result.fit_seconds >= 0.1
    # Every visit left its H, since nobody knew which would be the last.
    assert np.isfinite(ended.result.history[-1].elbo_f)
    ended.assert_consistent()


def test_observers_are_told_everything_in_order(threaded_fit):
    told = []

    class Watching(Observer):
        def planned(self, layout):
            told.append("planned")

        def stage(self, name):
            told.append(name)

        def evaluating(self):
            told.append("bound")

        def evaluated(self, record):
            told.append(record.passes)

        def progress(self, pairs, total_pairs, fit_seconds):
            assert 0 <= pairs <= total_pairs == 6 * np.count_nonzero(COUNTS)
            assert fit_seconds >= 0

    threaded_fit(observer=Watching(), n_passes=6, evaluate_every=3)
    assert told == ["planned", "compile", "workers", "start", "passes", "bound", 3, "bound", 6]


def test_numbers_are_lowered_to_what_there_is_work_for(threaded_fit):
    counts = np.array([[3.0, 1.0], [0.0, 2.0]])
    ended = threaded_fit(counts, n_workers=5, n_blocks=9, n_passes=3)
    assert (ended.layout.config.n_workers, ended.layout.config.n_blocks) == (2, 2)
    ended.assert_consistent(counts)
    ended.assert_passes_are_whole(3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"route": "tour"}, "route must be one of balanced, lap, random, ring, got 'tour'"),
        ({"route": "random", "deterministic": True}, "route must be lap or ring in a determinis"),
        ({"storage": "disk"}, "storage must be one of full, margins, sparse, topk, got 'disk'"),
        ({"start": "cold"}, "start must be one of random, scikit-learn, seeded, spread, got"),
        (
            {"family": "x"},
            "family must be one of bernoulli, gaussian, lda, multinomial, poisson, got 'x'",
        ),
        (
            {"inference": "anneal", "cvb0_passes": 7, "n_passes": 7},
            "cvb0_passes must be less than the 7 passes of anneal .*, got 7",
        ),
        ({"inference": "em"}, "inference must be one of anneal, cvb0, vb, got 'em'"),
        ({"leave_out": "word"}, "leave_out must be one of excess, none, pair, token, got 'word'"),
        ({"leave_out": 1}, "leave_out must be one of excess, none, pair, token, got 1"),
        ({"relax": 2}, "relax must be at least 1 and less than 2, got 2"),
        ({"settle": 0}, "settle must be at least 1, got 0"),
        ({"alpha": np.ones(2)}, r"alpha must be a number or have 3 values, got 2"),
        ({"eta": np.ones(2)}, r"eta must be a number or have 24 values, got 2"),
    ],
)
def test_bad_names_are_refused_before_anything_is_allocated(threaded_fit, options, message):
    with pytest.raises(ParameterError, match=message):
        threaded_fit(**options)
    assert threaded_fit.runs == []


@pytest.mark.parametrize("deterministic", [False, True])
def test_documents_are_folded_in_afresh_between_evaluations(threaded_fit, deterministic):
    options = {"n_passes": 7, "evaluate_every": 3, "deterministic": deterministic}
    ended = threaded_fit(refold_after=(2, 6, 9), **options)
    ended.assert_consistent()
    ended.assert_passes_are_whole(7)
    assert [record.passes for record in ended.result.history] == [3, 6, 7]
    without = threaded_fit(**options)
    if deterministic:
        assert bits(ended) != bits(without)
        assert bits(ended) == bits(threaded_fit(refold_after=(2, 6, 9), **options))


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ({}, 10),
        ({"temper_passes": 20}, 25),
        ({"inference": "anneal", "cvb0_passes": 11}, 20),
        ({"inference": "vb", "cvb0_passes": 11}, 10),
        ({"inference": "cvb0", "refold_after": (15,), "relax": 1.0}, 20),
        ({"inference": "cvb0"}, 40),  # over-relaxed in 33
    ],
)
def test_tol_waits_until_evaluations_can_be_compared(threaded_fit, options, passes):
    options = {"temper_passes": 0, **options}
    ended = threaded_fit(n_passes=40, evaluate_every=5, tol=1.0, **options)
    assert (ended.result.stopped, ended.result.passes) == ("tol", passes)


def test_each_inference_has_its_objective(threaded_fit):
    for inference, cvb0 in (("vb", [False, False]), ("cvb0", [True, True]),
                            ("anneal", [True, False])):  # fmt: skip
        ended = threaded_fit(inference=inference, cvb0_passes=5, n_passes=10, evaluate_every=5)
        assert [r.objective != r.elbo_f for r in ended.result.history] == cvb0
        assert_right(ended, 10)


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_entropy_is_computed_where_a_bound_will_need_it(
    threaded_fit, deterministic, monkeypatch
):
    asked, visit = set(), lda.Worker.visit

    def recording(worker, block, pass_, want_entropy):
        if worker.model.config.n_topics == 3:  # not the two of `warm_up`
            asked.add((pass_, want_entropy))
        visit(worker, block, pass_, want_entropy)

    monkeypatch.setattr(lda.Worker, "visit", recording)
    threaded_fit(n_passes=7, evaluate_every=3, deterministic=deterministic)
    assert asked == {(pass_, pass_ in (2, 5, 6)) for pass_ in range(7)}


class Recorded(Observer):
    """Remembers the starts that were tried, and what was done at rests."""

    def __init__(self):
        self.restarts, self.rests = [], []

    def restarted(self, restart):
        self.restarts.append(restart)

    def rested(self, passes, counts):
        self.rests.append((passes, dict(counts)))


def test_one_start_is_the_fit_as_it_was(threaded_fit):
    ended = threaded_fit(**OPTIONS, restarts=1, restart_passes=1)
    assert bits(ended) == bits(threaded_fit(**OPTIONS))
    assert ended.result.restarts == []


@pytest.mark.parametrize(
    ("start", "storage", "n_passes"),
    [("seeded", "margins", 4), ("seeded", "full", 1), ("scikit-learn", "margins", 1),
     ("random", "margins", 2)],
)  # fmt: skip
def test_the_best_start_goes_on_as_if_alone(threaded_fit, start, storage, n_passes):
    """With tempering: a start must not see the power of the passes before it."""
    options = {
        "deterministic": True, "route": "ring", "start": start, "storage": storage,
        "temper_passes": 6, "n_passes": 8, "evaluate_every": n_passes,
    }  # fmt: skip
    watching = Recorded()
    ended = threaded_fit(observer=watching, restarts=3, restart_passes=n_passes, **options)
    ended.assert_consistent()
    ended.assert_passes_are_whole(8)
    restarts = ended.result.restarts
    assert watching.restarts == restarts
    config = ended.layout.config
    assert [restart.seed for restart in restarts] == [config.start_seed(r) for r in range(3)]
    assert restarts[0].seed == 0 and len({restart.seed for restart in restarts}) == 3
    # On the route `ring` a seed draws nothing but the start.
    alone = {restart.seed: threaded_fit(seed=restart.seed, **options) for restart in restarts}
    objectives = [alone[restart.seed].result.history[0].objective for restart in restarts]
    assert [restart.objective for restart in restarts] == objectives
    best = restarts[int(np.argmax(objectives))]
    assert bits(ended) == bits(alone[best.seed])
    assert ended.result.work == alone[best.seed].result.work


class Clock:
    """In place of `time` in home: its seconds are those that a test says."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


@pytest.mark.parametrize("deterministic", [False, True])
def test_time_that_is_up_in_a_try_ends_the_fit_with_its_passes(
    threaded_fit, deterministic, monkeypatch, caplog
):
    """And with no visit more."""
    clock, trial, visits = Clock(), home.Home._run_on_trial, []
    monkeypatch.setattr(home, "time", clock)

    def time_is_up(self, now):
        # Once work is under way; the first passes of a block need not be over.
        if self.worker_words[:, VISITS].sum() > 7:
            clock.now = 99.0
        return clock.now > 9

    def watched(self, n_passes):
        whole = trial(self, n_passes)
        visits.append(int(self.worker_words[:, VISITS].sum()))
        return whole

    monkeypatch.setattr(home.Home, "_should_stop", time_is_up)
    monkeypatch.setattr(home.Home, "_run_on_trial", watched)
    ended = threaded_fit(
        n_passes=FOREVER, restart_passes=FOREVER, max_time=9.0, restarts=3,
        deterministic=deterministic,
    )  # fmt: skip
    result = ended.result
    assert (result.stopped, result.restarts) == ("max_time", [])
    assert len(visits) == 1 and visits[0] > 7
    assert int(ended.arrays["control"]["workers"][:, VISITS].sum()) == visits[0]
    assert result.passes == visits[0] / sum(len(stops) for stops in ended.stops)
    # They are passes, and neither pairs nor seconds of a start.
    assert result.work == int(ended.arrays["control"]["workers"][:, WORK].sum()) > 0
    assert result.pass_seconds == result.fit_seconds == 99.0
    ended.assert_consistent()
    assert "the fit is ended while start 1 of 3 is tried, and goes no further" in caplog.messages


@pytest.mark.parametrize(("max_time", "tried"), [(29.0, 1), (30.0, 2), (49.0, 3), (51.0, 4)])
def test_no_start_is_tried_that_leaves_no_time_for_the_best(
    threaded_fit, max_time, tried, monkeypatch, caplog
):
    """Tries of 10 seconds; the second may begin where 20 are left, one for it and one for going
    through the best one's passes again."""
    clock, trial = Clock(), home.Home._run_on_trial
    monkeypatch.setattr(home, "time", clock)

    def ten_seconds(self, n_passes):
        clock.now += 10
        return trial(self, n_passes)

    monkeypatch.setattr(home.Home, "_run_on_trial", ten_seconds)
    watching = Recorded()
    options = {"n_passes": 6, "evaluate_every": 2, "route": "ring", "deterministic": True}
    ended = threaded_fit(
        observer=watching, restarts=4, restart_passes=2, max_time=max_time, **options
    )
    assert len(ended.result.restarts) == len(watching.restarts) == tried
    told = [text for text in caplog.messages if "starts were tried" in text]
    said = f"{tried} of 4 starts were tried: max_time leaves no time for more"
    assert told == ([said] if tried < 4 else [])
    # With the best of them.
    best = max(ended.result.restarts, key=lambda restart: restart.objective)
    assert ended.result.history[0].objective == best.objective
    ended.assert_passes_are_whole(6)


@pytest.mark.parametrize("deterministic", [False, True])
def test_repairs_at_rests_do_not_count_as_passes(threaded_fit, deterministic):
    watching = Recorded()
    ended = threaded_fit(
        observer=watching, n_passes=9, evaluate_every=3, repair_after=(3, 8),
        deterministic=deterministic,
    )  # fmt: skip
    ended.assert_consistent()
    ended.assert_passes_are_whole(9)
    assert [record.passes for record in ended.result.history] == [3, 6, 9]
    assert [passes for passes, _ in watching.rests] == [3, 8]
    tried = sum(counts["repairs_tried"] for _, counts in watching.rests)
    kept = sum(counts["repairs_kept"] for _, counts in watching.rests)
    assert ended.result.at_rest == {"repairs_tried": tried, "repairs_kept": kept}


@pytest.mark.parametrize("storage", ["margins", "full"])
def test_a_fit_goes_on_to_the_bit_after_a_repair_in_vain(threaded_fit, storage, monkeypatch):
    # All topics are alike, so that there is a double; and no objective is good enough.
    monkeypatch.setattr(likeness, "LIKE_WORDS", 0.0)
    options = {**OPTIONS, "storage": storage, "n_topics": 6}
    without = bits(threaded_fit(**options))
    combine = bound.combine

    def falling(*arguments):
        found = combine(*arguments)
        falling.by += 1e6 if falling.on else 0
        return found._replace(objective=found.objective - falling.by)

    falling.by, falling.on = 0.0, False
    script = repair.script

    def told(*arguments):
        falling.on = True
        counts = yield from script(*arguments)
        falling.by, falling.on = 0.0, False
        return counts

    monkeypatch.setattr(bound, "combine", falling)
    monkeypatch.setattr(repair, "script", told)
    ended = threaded_fit(repair_after=(4, 8), **options)
    assert ended.result.at_rest == {"repairs_tried": 2, "repairs_kept": 0}
    assert bits(ended) == without


def test_a_bound_that_is_no_number_ends_the_fit(threaded_fit, monkeypatch):
    evaluate, seen = lda.Model.evaluate, []

    def spoilt(self, shared, n_passes):
        found = yield from evaluate(self, shared, n_passes)
        seen.append(n_passes)
        return found._replace(elbo=np.nan) if n_passes > 2 else found

    monkeypatch.setattr(lda.Model, "evaluate", spoilt)
    with pytest.raises(BoundError, match="after 4 passes the bound is nan"):
        threaded_fit(n_passes=8, evaluate_every=2)
    assert seen[-2:] == [2, 4]  # behind those of kernels that are compiled
