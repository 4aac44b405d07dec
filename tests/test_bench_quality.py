"""The benchmark of quality: its split, scores, choice, records and report, and the new peer."""

import itertools
import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from bench import common, peers, quality, quality_records, quality_report
from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.families.lda import exclusion
from esvi_shm.families.lda.schedule import Schedule

K = 3


@pytest.fixture
def corpus():
    counts = np.random.default_rng(1).poisson(0.8, (60, 12))
    counts[4] = 0  # an empty document
    counts[:, 7] = 0  # a word that never occurs
    return Corpus.from_sparse(counts, [f"word{v}" for v in range(12)])


@pytest.fixture
def folder(corpus, tmp_path):
    """A folder with the corpus as `docword.toy.txt.gz`."""
    import gzip

    counts = corpus.as_sparse().tocoo()
    triples = zip(counts.row + 1, counts.col + 1, counts.data.astype(int), strict=True)
    lines = ["60", "12", str(corpus.n_pairs), *(f"{d} {v} {n}" for d, v, n in triples)]
    with gzip.open(tmp_path / "docword.toy.txt.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    (tmp_path / "vocab.toy.txt").write_text("\n".join(corpus.vocabulary) + "\n")
    return tmp_path


@pytest.fixture
def fits(monkeypatch):
    """All systems replaced by one whose best prior is known; the list of fits that were asked for.

    Its topics are the words' frequencies, the more blurred the farther eta is from 0.05.
    """
    asked = []

    def fake(name):
        def fit(corpus, n_topics, alpha, eta, seed, at, **_):
            asked.append((name, alpha, eta, seed, tuple(at)))
            words = np.asarray(corpus.as_sparse().sum(axis=0)).ravel()
            noted = []
            for steps in at:
                blur = 10.0 * abs(eta - 0.05) + abs(alpha - 0.1) + 1.0 / steps
                topics = np.repeat((words + 1000.0 * blur)[:, None], n_topics, axis=1)
                prior = np.full(n_topics, alpha)
                noted.append(peers.Topics(steps, 0.2 * steps, 0.1 * steps, topics, prior))
            return None, noted

        return fit

    monkeypatch.setattr(common, "has", lambda package: True)
    monkeypatch.setattr(quality, "fit_ours", fake("ours"))
    for name in ("scikit_learn", "gensim", "tomotopy"):
        monkeypatch.setattr(peers, f"fit_{name}", fake(name))
    return asked


def run(folder, *more):
    out = folder / "out"
    quality.main(
        [str(folder), "--corpora", "toy", "--topics", str(K), "--passes=8", "--iterations=6",
         "--gensim-passes=2", "--samples=12", "--out", str(out), *more]
    )  # fmt: skip
    lines = (out / "quality.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_split_is_seeded_disjoint_and_whole(corpus):
    parts = quality.split(corpus, 3)
    assert [half.n_documents for half in (*parts.validation, *parts.test)] == [6] * 4
    assert parts.train.n_documents == 48
    halves = [*parts.validation, *parts.test]
    tokens = sum(half.n_tokens for half in halves)
    assert tokens + parts.train.n_tokens == corpus.n_tokens
    again, other = quality.split(corpus, 3), quality.split(corpus, 4)
    assert again.train.digest() == parts.train.digest() != other.train.digest()


def test_bootstrap_is_that_of_a_loop(monkeypatch):
    monkeypatch.setattr(quality_report, "DRAWS", 5)
    tokens, logs = np.array([3, 0, 5]), np.array([[-6.0, 0.0, -9.0], [-5.0, 0.0, -12.0]])
    times = np.random.default_rng(0).multinomial(3, [1 / 3] * 3, size=5)
    expected = [
        np.mean(
            [np.exp(-sum(times[b] * logs[s]) / max(sum(times[b] * tokens), 1)) for s in range(2)]
        )
        for b in range(5)
    ]
    np.testing.assert_allclose(quality_report.bootstrap(tokens, logs), expected)


def test_priors_come_from_validation_and_seeds_from_the_test(folder, fits):
    records = run(folder, "--systems", "tomotopy", "--seeds=2")
    grid = [(alpha, eta) for _, alpha, eta, seed, _ in fits if seed == 0]
    assert sorted(grid) == sorted(itertools.product((0.02, 0.05, 0.1), (0.01, 0.05, 0.1)))
    assert [fit[1:4] for fit in fits if fit[3] > 0] == [(0.1, 0.05, 1)]
    states = [r for r in records if r["part"] == "state"]
    assert {r["steps"] for r in states} == {5, 10, 12}
    (tokens,) = [np.array(r["tokens"]) for r in records if r["part"] == "test"]
    for state in states:
        expected = np.exp(-sum(state["log_likelihood"]) / tokens.sum())
        assert state["test"] == pytest.approx(expected, rel=1e-3)
    assert len(tokens) == 6


def test_what_may_be_chosen_from_is_an_argument(folder, fits, capsys):
    pairs = ["--grid", "0.1,0.01", "0.02,0.05"]
    run(folder, "--systems", "tomotopy", "--seeds=2", *pairs)
    assert [fit[1:4] for fit in fits] == [(0.1, 0.01, 0), (0.02, 0.05, 0), (0.02, 0.05, 1)]
    found = quality_report.find(
        quality_records.Records(folder / "out" / "quality.jsonl"),
        corpus="toy", split=0, topics=K, system="tomotopy",
    )  # fmt: skip
    assert found.priors == {"alpha": 0.02, "eta": 0.05} and (found.choices, found.seeds) == (2, 2)
    # From more, only what is missing is run, and what was chosen may change.
    run(folder, "--systems", "tomotopy", "--seeds=1", *pairs, "0.1,0.05")
    assert [fit[1:4] for fit in fits[3:]] == [(0.1, 0.05, 0)]
    with pytest.raises(SystemExit):
        run(folder, "--grid", "0.1")
    assert "argument --grid: invalid" in capsys.readouterr().err


def test_what_is_there_is_not_run_again(folder, fits):
    run(folder, "--seeds=1")
    asked = len(fits)
    assert {fit[0] for fit in fits} == {"ours", "scikit_learn", "gensim", "tomotopy"}
    run(folder, "--seeds=1")
    assert len(fits) == asked
    path = folder / "out" / "quality.jsonl"
    lines = path.read_text().splitlines()
    last = max(i for i, line in enumerate(lines) if '"state"' in line)
    lost = json.loads(lines[last])
    # As a crash leaves it: the line is cut off, and what came later is not there.
    path.write_text("\n".join(lines[:last]) + "\n" + lines[last][:30])
    again = run(folder, "--seeds=1")
    assert {**lost, "load": 0} in [{**record, "load": 0} for record in again]
    assert fits[asked:] == [
        ("tomotopy", lost["alpha"], lost["eta"], lost["seed"], (lost["steps"],))
    ]


def test_our_curve_has_a_fit_for_each_number_of_passes_at_the_best_priors_alone(folder, fits):
    run(folder, "--systems", "vb", "--seeds=2")
    at = {(fit[1:4], fit[4]) for fit in fits}
    assert ((0.05, 0.01, 0), (8,)) in at and ((0.1, 0.05, 0), (5,)) in at
    assert ((0.1, 0.05, 1), (5, 8)) in at and len(fits) == 11


def test_a_peer_that_is_not_installed_is_left_out_with_the_reason(
    folder, fits, monkeypatch, capsys
):
    monkeypatch.undo()
    real = common.importlib.util.find_spec
    monkeypatch.setattr(
        common.importlib.util, "find_spec", lambda name: None if name == "tomotopy" else real(name)
    )
    with pytest.raises(SystemExit) as end:
        run(folder, "--systems", "tomotopy")
    said = capsys.readouterr().out
    assert not end.value.code and "skipped: none of the systems" in said
    assert "left out: tomotopy is not installed" in said


def test_absent_corpora_and_an_unknown_system(folder, fits, capsys):
    with pytest.raises(SystemExit) as end:
        quality.main([str(folder), "--corpora", "gone", "--out", str(folder / "out")])
    assert not end.value.code and "skipped: no corpus in" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        run(folder, "--systems", "mallet")
    assert end.value.code == 2 and "mallet" in capsys.readouterr().err
    assert not fits and not (folder / "out").exists()


def test_report_says_who_wins(folder, fits, capsys, monkeypatch):
    pytest.importorskip("matplotlib", reason="an optional extra: pip install esvi_shm[bench]")
    monkeypatch.setattr(quality_report, "SPEED_TARGET", 2.0)
    run(folder, "--seeds=2")
    capsys.readouterr()
    quality.main(["--report", "--out", str(folder / "out")])
    text = (folder / "out" / "quality.md").read_text()
    assert text.rstrip() in capsys.readouterr().out
    # 12 steps of tomotopy blur least; ours, after 8, never comes so near.
    of = dict(line.strip("| ").split(" | ") for line in text.splitlines() if "cvb0" in line)
    best = of["best peer's over that of cvb0"]
    assert best.startswith("tomotopy: 0.9") and "NOT met" in best
    assert of["tomotopy's seconds over those of cvb0"] == "1.5 (NOT met)"
    assert of["cvb0 passes the best peer after"] == "never"
    soon = of["as many passes of cvb0 as are 2 times sooner than tomotopy: ratio"]
    assert soon.startswith("5 passes, 2.4 times: 0.9")  # of 5 and 8
    assert "| tomotopy | 0.1, 0.05 (of 9); 12 |" in text
    images = sorted((folder / "out").glob("*.png"))
    assert [image.stem for image in images] == [
        f"quality-{K}-topics-split-0{what}" for what in ("-by-passes", "")
    ]
    assert all(image.read_bytes().startswith(b"\x89PNG") for image in images)


def test_seconds_of_their_own_are_what_counts(folder, fits, capsys):
    run(folder, "--timed=2", "--systems", "cvb0")
    assert not fits
    said = "left out: no priors were chosen for cvb0, toy, 3 topics"
    assert said in capsys.readouterr().out
    run(folder, "--systems", "cvb0", "tomotopy", "--seeds=1")
    asked = len(fits)
    for _ in range(2):  # what is there is not run again
        records = run(folder, "--timed=2", "--systems", "cvb0", "tomotopy")
        assert [fit[:4] for fit in fits[asked:]] == [
            (name, 0.1, 0.05, turn) for turn in (0, 1) for name in ("ours", "tomotopy")
        ]
    for record in records:
        if record["part"] == "time":
            record["cpu"] *= 100 if record["system"] == "tomotopy" else 10
    path = folder / "out" / "quality.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    table = quality_report.gather(quality_records.Records(path), 0, K)["toy"]
    assert [found.last.cpu for found in table.values()] == [8.0, 120.0]
    text = "\n".join(quality_report.tables({"toy": table}))
    assert "| tomotopy's seconds over those of cvb0 | 15.0 (NOT met) |" in text and "†" not in text
    # What was timed is not compared with what was not.
    del records[-1]
    kept = [r for r in records if r["part"] != "time" or r["system"] == "cvb0"]
    path.write_text("".join(json.dumps(record) + "\n" for record in kept))
    table = quality_report.gather(quality_records.Records(path), 0, K)["toy"]
    text = "\n".join(quality_report.tables({"toy": table}))
    assert "| tomotopy's seconds over those of cvb0 |  |" in text and "(1.2 †)" in text


def test_report_leaves_out_a_system_whose_grid_is_not_complete(folder, fits):
    records = run(folder, "--systems", "vb", "anneal", "--seeds=1")
    path = folder / "out" / "quality.jsonl"
    of_vb = [i for i, r in enumerate(records) if r["part"] == "state" and r["system"] == "vb"]
    kept = [json.dumps(r) for i, r in enumerate(records) if i != of_vb[0]]
    path.write_text("\n".join(kept) + "\n")
    table = quality_report.gather(quality_records.Records(path), 0, K)
    assert list(table["toy"]) == ["anneal"]


def test_a_broken_line_is_named(tmp_path):
    path = tmp_path / "quality.jsonl"
    path.write_text('{"part": "machine"}\n{"part": \n')
    with pytest.raises(ValueError, match=r"quality\.jsonl, line 2: must be a JSON object"):
        quality_records.Records(path)


def test_bounds_of_real_fits(folder):
    records = run(
        folder, "--bound", "--systems", "vb", "scikit-learn", "--seeds=1", "--converged=9"
    )
    bounds = {r["system"]: r for r in records if r["part"] == "bound"}
    assert {name: r["steps"] for name, r in bounds.items()} == {"vb": 8, "scikit-learn": 9}
    assert all(-3.5 < r["elbo"] < -2.0 for r in bounds.values())  # log 12 = 2.48, and topics
    (row,) = [
        line
        for line in quality_report.bound_table(list(bounds.values()), K)
        if line.startswith("| toy |")
    ]
    won = bounds["vb"]["elbo"] >= bounds["scikit-learn"]["elbo"]
    assert (": met |" in row) == won


def test_topics_of_a_real_fit_are_those_of_the_words(corpus, monkeypatch):
    # Several blocks, so that their words are in another order.
    monkeypatch.setattr(quality, "FitConfig", partial(FitConfig, n_blocks=4))
    _, (first, last) = quality.fit_ours(corpus, K, 0.1, 0.05, 0, [2, 1], inference="cvb0")
    assert (first.steps, last.steps) == (1, 2) and first.seconds > 0 and first.cpu >= 0
    words = np.asarray(corpus.as_sparse().sum(axis=0)).ravel()
    np.testing.assert_allclose(last.lambda_.sum(axis=1) - K * 0.05, words, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "power", "leave_out"),
    [
        ("cvb0", 0.9, exclusion.EXCESS),
        ("cvb0, power 1", 1.0, exclusion.EXCESS),
        ("cvb0, power 0.8", 0.8, exclusion.EXCESS),
        ("cvb0, leaving the pair out", 0.9, exclusion.PAIR),
        ("cvb0, leaving a token out", 0.9, exclusion.TOKEN),
        ("cvb0, leaving nothing out", 0.9, exclusion.NONE),
        ("anneal", 1.0, exclusion.NONE),  # by vb
    ],
)
def test_what_our_systems_end_with(corpus, monkeypatch, name, power, leave_out):
    configs = []

    def stop(corpus, config, observer, judge):
        configs.append(config)
        raise InterruptedError

    monkeypatch.setattr(quality.engine, "fit", stop)
    with pytest.raises(InterruptedError):
        quality.fit_ours(corpus, K, 0.1, 0.05, 0, [50], **quality_records.OURS[name])
    schedule = Schedule(configs[0])
    assert (schedule.power(49), schedule.leave_out(49)) == (power, leave_out)


def test_a_fit_that_a_signal_cut_short_is_not_kept(corpus, monkeypatch):
    cut = SimpleNamespace(stopped="SIGTERM")
    monkeypatch.setattr(quality.engine, "fit", lambda corpus, config, observer, judge: cut)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        quality.fit_ours(corpus, K, 0.1, 0.05, 0, [5], inference="cvb0")


def test_learned_alpha_is_judged_by_the_validation_documents(corpus, tmp_path):
    parts, records = quality.split(corpus, 0), quality_records.Records(tmp_path / "quality.jsonl")
    rows, word_ids = np.random.default_rng(0).random((12, K)) + 0.1, np.roll(np.arange(12), 5)
    topics = peers.Topics(5, 0.1, 0.1, rows[np.argsort(word_ids)], np.full(K, 0.2))
    judged = []

    def fit(corpus, n_topics, alpha, eta, seed, at, judge=None):
        judged.append(judge and judge(rows, word_ids, topics.alpha))
        return None, [topics]

    for name in ("cvb0", "cvb0, learning alpha"):
        key = {"corpus": "toy", "topics": K, "system": name, "alpha": 0.2, "eta": 0.1, "seed": 0}
        quality.fit_and_score(records, parts, key, quality.System(fit, 5), [5])
    assert judged == [None, quality.complete(topics, parts.validation).perplexity]


def test_ways_out_of_poor_optima_run_where_they_are_named():
    def names(systems):
        given = SimpleNamespace(
            passes=5, iterations=1, chunk=10, gensim_passes=1, samples=5, systems=systems
        )
        return set(quality.systems(given))

    assert not names(None) & set(quality_records.WAYS_OUT)
    assert names(["anneal, noise 1"]) == {"anneal, noise 1"}


@pytest.mark.parametrize("learn", [False, True])
def test_tomotopys_topics_are_its_counts_in_our_vocabulary(corpus, learn):
    pytest.importorskip("tomotopy", reason="an optional extra: pip install esvi_shm[bench]")
    _, noted = peers.fit_tomotopy(corpus, K, 0.1, 0.05, 7, [4, 30], learn)
    words = np.asarray(corpus.as_sparse().sum(axis=0)).ravel()
    for topics in noted:
        np.testing.assert_allclose(topics.lambda_.sum(axis=1), words + K * 0.05, rtol=1e-5)
    assert [topics.steps for topics in noted] == [4, 30]
    assert noted[1].seconds > noted[0].seconds and noted[1].cpu > noted[0].cpu
    assert np.allclose(noted[1].alpha, 0.1) != learn


def test_priors_are_chosen_by_validation_alone():
    pairs = [
        {"alpha": 0.1, "eta": 0.01, "validation": 9.0, "test": 1.0},
        {"alpha": 0.1, "eta": 0.05, "validation": 8.0, "test": 2.0},
    ]
    assert quality_records.choose(pairs) == {"alpha": 0.1, "eta": 0.05}
