"""The command: ``python -m esvi_shm.evaluate``, as a user runs it."""

import hashlib
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from esvi_shm import evaluate, infer, metrics, store
from esvi_shm.corpus import Corpus, read_corpus
from esvi_shm.model import FittedModel
from esvi_shm.parameters import Parameters
from tests import commands


@pytest.fixture
def held_out(tmp_path) -> Path:
    """Twelve documents in words that the model knows, one of which it does not."""
    counts = np.random.default_rng(8).poisson(0.8, (12, 40))
    counts[4] = 0
    lines = [
        " ".join(f"word{v} " * n for v, n in enumerate(row)) + " unheard" * (d == 2)
        for d, row in enumerate(counts)
    ]
    path = tmp_path / "held-out.txt"
    path.write_text("\n".join(line.strip() or "unheard" for line in lines) + "\n")
    return path


def figures_of(text: str) -> dict[str, str]:
    """The lines of the report under the table, by name."""
    found = re.findall(r"^([a-zNPMI -]+?)  +(\S.*)$", text, re.M)
    return {name: value for name, value in found if name != "topic"}


def test_a_report_from_the_shell(model, held_out, tmp_path):
    before = _digests(model)
    done = commands.run(
        "evaluate",
        model,
        held_out,
        "--top-words",
        "3",
        "--seed",
        "5",
        "--json",
        tmp_path / "f.json",
    )
    assert done.returncode == 0, done.stderr
    assert _digests(model) == before
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["topic", "share", "NPMI", "words"]
    table = [line.split() for line in lines[1:5]]
    assert [row[0] for row in table] == ["0", "1", "2", "3"]
    assert all(len(row) == 6 and row[3].startswith("word") for row in table)

    # By the library, step by step.
    loaded, corpus = store.load(model), read_corpus(held_out)
    aligned = metrics.align(corpus, loaded.words).corpus
    observed, scored = metrics.split_tokens(aligned, 5)
    beta = metrics.point_topics(loaded.lambda_)
    theta = metrics.fold_in(beta, loaded.alpha, observed)
    expected = metrics.completion_perplexity(theta, beta, scored)
    peers = metrics.held_out_bound(loaded.lambda_, loaded.alpha, loaded.eta, aligned)
    top = [topic.words for topic in loaded.topics(25)]
    npmi = metrics.coherence_npmi(top, corpus, 10).npmi

    told = json.loads((tmp_path / "f.json").read_text())
    assert told["perplexity"] == expected.perplexity
    assert told["scored_tokens"] == expected.n_tokens == scored.n_tokens
    assert told["observed_tokens"] == observed.n_tokens
    assert told["outside_words"] == 1 and told["outside_tokens"] == 2
    assert told["tokens"] == corpus.n_tokens == scored.n_tokens + observed.n_tokens + 2
    assert told["documents"] == 12
    assert told["scored_documents"] == (expected.tokens > 0).sum() == 11
    assert told["bound"] == pytest.approx(peers.bound)
    assert told["perplexity_scikit_learn"] == pytest.approx(peers.scikit_learn)
    assert told["perplexity_gensim"] == pytest.approx(peers.gensim)
    assert told["npmi"] == pytest.approx(npmi.mean())
    assert [topic["npmi"] for topic in told["topics"]] == pytest.approx(npmi.tolist())
    assert told["diversity"] == metrics.topic_diversity(top, 25)
    assert [topic["words"] for topic in told["topics"]] == [row[3:] for row in table]

    shown = figures_of(done.stdout)
    assert shown["held-out perplexity"].split()[0] == f"{expected.perplexity:.2f}"
    assert shown["scored tokens"].startswith(f"{expected.n_tokens:,} in 11 of 12 documents")
    assert shown["outside the vocabulary"].startswith("1 words, 2 tokens")
    assert float(shown["scikit-learn would report"].split()[0]) == pytest.approx(
        peers.scikit_learn, rel=1e-5
    )
    assert float(shown["gensim would report"].split()[0]) == pytest.approx(peers.gensim, rel=1e-5)
    assert shown["mean NPMI"].startswith(f"{npmi.mean():.4f}")
    assert shown["topic diversity"].startswith(f"{told['diversity']:.4f}")


def test_an_unused_topic_is_called_so_and_left_out_of_the_mean(model, held_out, capsys):
    loaded, corpus = store.load(model), read_corpus(held_out)
    lambda_ = np.column_stack([loaded.lambda_, loaded.eta]).astype(np.float32)
    parameters = Parameters(lambda_, None, [np.ones((60, 5))], np.full(5, 0.1), loaded.eta)
    wider = FittedModel(parameters, loaded.words, loaded.history, {})
    given = evaluate._parser().parse_args([str(model), str(held_out), "--top-words", "3"])
    before, after = (evaluate._evaluate(m, corpus, None, given) for m in (loaded, wider))
    assert (before.figures["unused_topics"], after.figures["unused_topics"]) == (0, 1)
    assert after.topics[4]["words"] == [] and math.isnan(after.topics[4]["npmi"])
    assert after.figures["npmi"] == pytest.approx(before.figures["npmi"])
    assert after.figures["diversity"] == before.figures["diversity"]
    evaluate._print_report(after, True)
    assert capsys.readouterr().out.splitlines()[5].split() == ["4", "0.0%", "nan", "(unused)"]


def _digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


def test_perplexity_is_by_the_formula_of_the_help(model, held_out, tmp_path):
    """In plain float64, from the files of the model alone."""
    assert evaluate.main([str(model), str(held_out), "--json", str(tmp_path / "f.json")]) == 0
    told = json.loads((tmp_path / "f.json").read_text())
    lambda_, alpha = np.load(model / "lambda.npy").astype(float), np.load(model / "alpha.npy")
    beta = lambda_ / lambda_.sum(axis=0)
    words = (model / "vocabulary.txt").read_text().splitlines()
    corpus = metrics.align(read_corpus(held_out), words).corpus
    halves = [
        scipy.sparse.csr_matrix((half.counts, half.indices, half.indptr), corpus.as_sparse().shape)
        for half in metrics.split_tokens(corpus, 0)
    ]
    total = tokens = 0.0
    for seen, hidden in zip(*(half.toarray() for half in halves), strict=True):
        gamma = alpha + seen.sum() / len(alpha)
        for _ in range(100):
            phi = gamma * beta
            gamma = alpha + seen @ (phi / phi.sum(axis=1, keepdims=True))
        total += hidden @ np.log(beta @ (gamma / gamma.sum()))
        tokens += hidden.sum()
    assert told["perplexity"] == pytest.approx(math.exp(-total / tokens), rel=1e-4)


def evaluated(capfd, *arguments: object) -> tuple[str, str]:
    """What a command that runs here writes on standard output and error."""
    capfd.readouterr()
    assert evaluate.main([str(argument) for argument in arguments]) == 0
    return capfd.readouterr()


def test_quiet_no_table_and_a_reference(model, held_out, tmp_path, capfd):
    reference = tmp_path / "reference.txt"
    reference.write_text("word0 word1 word2\nword0 word1\nword3\n")
    quiet = [model, held_out, "--quiet"]
    out, err = evaluated(capfd, *quiet, "--top-words", "0", "--reference", reference)
    assert err == ""
    assert "topic  share" not in out
    shown = figures_of(out)
    assert "reference.txt" in shown["mean NPMI"]
    assert "never occur there" in shown["mean NPMI"]
    plain = figures_of(evaluated(capfd, *quiet)[0])
    assert "held-out.txt" in plain["mean NPMI"]
    assert plain["mean NPMI"] != shown["mean NPMI"]
    assert plain["held-out perplexity"] == shown["held-out perplexity"]


def test_reading_options_are_those_of_fit(model, tmp_path, capfd):
    counts = np.random.default_rng(0).poisson(1, (9, 40))
    path = tmp_path / "counts"
    with open(path, "wb") as file:
        scipy.sparse.save_npz(file, scipy.sparse.csr_matrix(counts.T))
    words = tmp_path / "words"
    words.write_text("".join(f"word{v}\n" for v in range(40)))
    options = ["--format", "npz", "--transpose", "--vocabulary", words]
    shown = figures_of(evaluated(capfd, model, path, *options)[0])
    assert "of 9 documents" in shown["scored tokens"]
    assert shown["outside the vocabulary"].startswith("0 words")


def test_left_to_right_on_a_sample(model, held_out, tmp_path, capsys):
    target = tmp_path / "f.json"
    options = ["--left-to-right", "5", "--particles", "3", "--seed", "2", "--json", str(target)]
    assert evaluate.main([str(model), str(held_out), *options, "--workers", "1"]) == 0
    told = json.loads(target.read_text())
    loaded = store.load(model)
    corpus = metrics.align(read_corpus(held_out), loaded.words).corpus
    beta = metrics.point_topics(loaded.lambda_)
    expected = metrics.left_to_right(beta, loaded.alpha, corpus, 5, 3, 2)
    assert told["perplexity_left_to_right"] == expected.perplexity
    assert told["left_to_right_standard_error"] == expected.standard_error > 0
    assert told["left_to_right_documents"] == 5
    assert told["left_to_right_tokens"] == expected.n_tokens
    shown = figures_of(capsys.readouterr().out)["left-to-right perplexity"]
    assert shown == (
        f"{expected.perplexity:.2f}   (standard error {expected.standard_error:.2f} over 5 "
        f"documents; {expected.n_tokens:,} tokens, 3 particles)"
    )
    assert evaluate.main([str(model), str(held_out), "--json", str(target)]) == 0
    assert "left-to-right" not in capsys.readouterr().out
    assert "particles" not in json.loads(target.read_text())


def test_what_json_has_no_number_for_is_null(tmp_path):
    target = tmp_path / "f.json"
    report = evaluate._Report({"perplexity": math.inf, "npmi": 0.5}, [{"npmi": math.nan}])
    evaluate._write_json(report, str(target))
    told = json.loads(target.read_text(), parse_constant=pytest.fail)
    assert told == {"perplexity": None, "npmi": 0.5, "topics": [{"npmi": None}]}


def test_the_help_has_the_formula():
    text = evaluate._parser().format_help()
    assert "exp(- sum_dv n_dv log(sum_k theta_dk beta_vk) / sum_dv n_dv)" in text


def one_error(arguments: list[object], capsys) -> str:
    """The message of a command that refuses its input."""
    assert evaluate.main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    errors = [line for line in captured.err.splitlines() if "error" in line]
    assert len(errors) == 1 and errors[0] == captured.err.splitlines()[-1]
    return errors[0].removeprefix("esvi_shm.evaluate: error: ")


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--seed", "-1"], "--seed must be from 0 to 2**63 - 1, got -1"),
        (["--top-words", "-1"], "--top-words must be at least 0, got -1"),
        (["--left-to-right", "-1"], "--left-to-right must be at least 0, got -1"),
        (["--particles", "0"], "--particles must be at least 1, got 0"),
        (["--workers", "0"], "--workers must be at least 1, got 0"),
        (["--format", "x"], "--format must be one of"),
        (["--transpose"], "--transpose is not for the format text"),
        (["--json", "/nowhere/f.json"], "--json must be a file in a folder that exists"),
        (["--json", "/"], "--json must be a file in a folder that exists"),
        (["--reference", "/nowhere.txt"], "/nowhere.txt: there is no such file"),
    ],
)
def test_bad_options(arguments, says, model, held_out, capsys):
    assert one_error([model, held_out, *arguments], capsys).startswith(says)


def test_bad_models(model, held_out, tmp_path, capsys):
    assert "nowhere: not a model" in one_error([tmp_path / "nowhere", held_out], capsys)
    assert "held-out.txt: not a model" in one_error([held_out, held_out], capsys)
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    (broken / "lambda.npy").write_bytes((broken / "lambda.npy").read_bytes()[:-4])
    assert "lambda.npy: the file is damaged" in one_error([broken, held_out], capsys)
    (broken / "lambda.npy").unlink()
    assert "lambda.npy: the file is missing" in one_error([broken, held_out], capsys)


def test_bad_corpora(model, held_out, tmp_path, capsys):
    def says(text: str, *more: object) -> str:
        path = tmp_path / "bad.txt"
        path.write_text(text)
        return one_error([model, path, *more], capsys)

    assert "nowhere.txt" in one_error([model, tmp_path / "nowhere.txt"], capsys)
    assert "bad.txt: a text must have words" in says("\n\n")
    message = says("ash bay\ncap\n")
    assert "word in common" in message and "'ash'" in message and "'word0'" in message
    reference = tmp_path / "reference.txt"
    reference.write_text("ash bay\n")
    assert "reference.txt: there must be a word in common" in one_error(
        [model, held_out, "--reference", reference], capsys
    )
    # Words that the model has, and only tokens of another.
    words = tmp_path / "words"
    words.write_text("word1\nunheard\n")
    assert "a word that the model knows" in _npz(
        model, [[0, 3]], ["--vocabulary", words], tmp_path, capsys
    )
    words.write_text("word1\nword2\n")
    message = _npz(model, [[1, 2], [0, 1.5]], ["--vocabulary", words], tmp_path, capsys)
    assert "whole numbers" in message and "1.5 in document 1" in message and "'word2'" in message


def _npz(model, counts, arguments, tmp_path, capsys) -> str:
    path = tmp_path / "bad.npz"
    scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(np.array(counts)))
    return one_error([model, path, *arguments], capsys)


def test_a_scored_half_without_tokens(model, tmp_path, capsys):
    path = tmp_path / "one.txt"
    path.write_text("word1\n")
    corpus = metrics.align(Corpus.from_tokens([["word1"]]), store.load(model).words).corpus
    scored = {seed: metrics.split_tokens(corpus, seed)[1].n_tokens for seed in range(20)}
    assert set(scored.values()) == {0, 1}
    seeds = [next(seed for seed, n in scored.items() if n == tokens) for tokens in (0, 1)]
    message = one_error([model, path, "--seed", seeds[0]], capsys)
    assert "one.txt: there must be a token to score" in message
    # The other way around the observed half is empty, and the prior mean predicts.
    assert evaluate.main([str(model), str(path), "--seed", str(seeds[1])]) == 0


def permuted(model: Path, folder: Path, topics: list[int]) -> Path:
    """A model with some topics of another one, in another order."""
    loaded = store.load(model)
    parameters = Parameters(
        loaded.lambda_[:, topics], None, [loaded.gamma[:, topics]], loaded.alpha[topics], loaded.eta
    )
    store.save(FittedModel(parameters, loaded.words, loaded.history, loaded.summary), folder)
    return folder


def test_stability_and_intervals(model, held_out, tmp_path, capsys):
    same = permuted(model, tmp_path / "same", [2, 0, 3, 1])
    fewer = permuted(model, tmp_path / "fewer", [3, 1])
    arguments = [str(model), str(held_out), "--top-words", "2", "--intervals", "--quiet"]
    json_file = tmp_path / "f.json"
    stable = [*arguments, "--json", str(json_file), "--stability"]
    assert evaluate.main([*stable, str(same)]) == 0
    shown, told = capsys.readouterr().out, json.loads(json_file.read_text())
    assert told["stability"] == pytest.approx(1.0, abs=1e-6) and told["stability_jaccard"] == 1.0
    assert [topic["partners"] for topic in told["topics"]] == [[1], [3], [0], [2]]
    assert figures_of(shown)["mean stability"].startswith("1.0000")

    assert evaluate.main([*stable, str(same), str(fewer)]) == 0
    shown, told = capsys.readouterr().out, json.loads(json_file.read_text())
    assert told["stability_models"] == [str(same), str(fewer)]
    assert [topic["partners"][1] for topic in told["topics"]] == [-1, 1, -1, 0]
    similarity = [topic["stability"] for topic in told["topics"]]
    assert similarity == pytest.approx([0.5, 1, 0.5, 1], abs=1e-6)
    assert told["stability"] == pytest.approx(0.75, abs=1e-6)
    header, first, *_ = shown.splitlines()
    assert header.split() == ["topic", "share", "NPMI", "stability", "Jaccard", "words"]
    assert [float(x) for x in first.split()[3:5]] == [0.5, 0.5]

    topic = told["topics"][0]
    found = store.load(model).topic_word_interval(topic["words"], [0])
    assert topic["intervals"] == np.stack(found, axis=2)[0].tolist()
    low, high = topic["intervals"][0]
    assert f"{topic['words'][0]} ({low:.2g}-{high:.2g})" in first
    # Without being asked for, neither is told.
    assert evaluate.main([*arguments[:4], "--json", str(json_file)]) == 0
    told = json.loads(json_file.read_text())
    assert not {"stability", "stability_models"} & told.keys()
    assert not {"stability", "partners", "intervals"} & told["topics"][0].keys()


def test_topics_that_nothing_uses_are_not_found_again(model, held_out, tmp_path, capsys):
    loaded = store.load(model)
    lambda_ = loaded.lambda_.copy()
    lambda_[:, 1] = loaded.eta
    dead = Parameters(lambda_, None, [loaded.gamma], loaded.alpha, loaded.eta)
    store.save(FittedModel(dead, loaded.words, loaded.history, loaded.summary), tmp_path / "dead")
    json_file = tmp_path / "f.json"
    arguments = ["--quiet", "--json", str(json_file), "--stability"]
    assert evaluate.main([str(tmp_path / "dead"), str(held_out), *arguments, str(model)]) == 0
    told = json.loads(json_file.read_text())
    assert [topic["partners"] for topic in told["topics"]] == [[0], [], [2], [3]]
    assert told["topics"][1]["stability"] is None and told["stability"] == pytest.approx(1.0)
    assert evaluate.main([str(model), str(held_out), *arguments, str(tmp_path / "dead")]) == 0
    told = json.loads(json_file.read_text())
    assert [topic["partners"] for topic in told["topics"]] == [[0], [-1], [2], [3]]
    assert told["stability"] == pytest.approx(0.75)


def test_stability_against_what_is_no_model(model, held_out, tmp_path, capsys):
    assert evaluate.main([str(model), "nowhere.txt", "--stability", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_a_matrix_without_names_is_in_the_model_s_order_as_for_infer(
    model, tmp_path, capsys, caplog
):
    """Both commands: the same warning, and the same figures as with the names."""
    counts = np.random.default_rng(0).poisson(1, (9, 40))
    path, words = tmp_path / "counts.npz", tmp_path / "words"
    scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(counts))
    words.write_text("".join(f"{word}\n" for word in store.load(model).words))
    named = figures_with(model, path, tmp_path, "--vocabulary", str(words))
    thetas = []
    for options in ([], ["--vocabulary", str(words)]):
        out = ["--out", str(tmp_path / "theta.npy")]
        assert infer.main([str(model), str(path), *out, *options]) == 0
        thetas.append(np.load(tmp_path / "theta.npy"))
    np.testing.assert_array_equal(*thetas)
    (of_infer,) = caplog.messages
    assert "the corpus has no names of words: columns are taken for the model's" in of_infer
    caplog.clear()
    nameless = figures_with(model, path, tmp_path)
    # Counted in the same documents, the reference is the corpus itself.
    assert caplog.messages == [of_infer]
    assert nameless == named
    capsys.readouterr()
    scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(counts[:, 1:]))
    message = one_error([model, path], capsys)
    assert "the corpus has no names of words" in message and "40 words, got 39" in message
    assert infer.main([str(model), str(path), "--out", str(tmp_path / "theta.npy")]) == 2
    assert message in capsys.readouterr().err


def figures_with(model: Path, corpus: Path, folder: Path, *options: str) -> dict:
    target = folder / "f.json"
    arguments = [str(model), str(corpus), "--json", str(target), *options]
    assert evaluate.main(arguments) == 0
    return json.loads(target.read_text())
