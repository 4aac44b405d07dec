"""``python -m esvi_shm.fit`` on several nodes, as a user runs it: real processes, tcp and MPI."""

import importlib.util
import shutil
import signal
import subprocess
import threading

import numpy as np
import pytest
import scipy.sparse
from sklearn.metrics import adjusted_rand_score

import esvi_shm
from esvi_shm import fit, fit_nodes, store
from esvi_shm.config import FitConfig
from esvi_shm.corpus import read_corpus
from esvi_shm.errors import ParameterError, PeerError
from esvi_shm.mixture_options import MixtureOptions
from tests.commands import command, run, write_uci
from tests.families.mixture.play import blobs
from tests.runtime.meeting import Meeting
from tests.stored import make_model
from tests.transports.home import free_addresses, write_key

#: Seconds after which a lost node must have been named.
LIMIT = 10
SMALL = ("--topics", "3", "--workers", "1", "--blocks", "4", "--top-words", "0", "--tol", "0")
MIXTURE = ("--family", "gaussian", "--components", "3", "--top-words", "0")
pytestmark = pytest.mark.usefixtures("nothing_left")


def start(*arguments, **options):
    return subprocess.Popen(
        command("fit", *arguments),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def over_tcp(nodes, rank):
    return "--transport", "tcp", "--rank", rank, "--nodes", ",".join(nodes)


def is_whole(folder, corpus):
    """A model of all documents, from all nodes."""
    model = esvi_shm.load(folder)
    assert model.summary["n_nodes"] == 2
    assert model.summary["n_documents"] == len(model.gamma) == corpus.n_documents
    assert model.summary["n_tokens"] == corpus.n_tokens
    tokens = corpus.document_tokens()
    np.testing.assert_allclose(model.gamma.sum(axis=1), tokens + model.alpha.sum(), rtol=1e-4)
    words = np.asarray(corpus.as_sparse().sum(axis=0)).ravel()
    near = {"rtol": 1e-4, "atol": 1e-3}
    np.testing.assert_allclose(model.lambda_.sum(axis=1), words + 3 * model.eta, **near)
    return model


def test_nodes_launched_here_make_one_model(tmp_path):
    path, out = write_uci(tmp_path), tmp_path / "model"
    ended = run(
        "launch", "--nodes", "2", "--", "fit", path, *SMALL, "--passes", "20", "--out", out,
        "--holdout", "0.2", "--learn-priors", "both", "--inference", "cvb0", "--top-words", "2",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert all(line.startswith("[0]") for line in lines)
    assert sum(line.startswith(f"[0]     {k} ") for line in lines for k in range(3)) == 3
    summary = esvi_shm.load(out).summary
    assert summary["n_documents"] == 48 and summary["holdout_perplexity"] > 1


@pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or shutil.which("mpiexec") is None,
    reason="no mpi4py or no mpiexec: pip install 'esvi_shm[mpi-local]'",
)
@pytest.mark.parametrize(
    "more",
    [
        ("--repair-after", "29"),
        # The frames are those of other fits; test_topic_axis_nodes has what is special.
        pytest.param(("--axis", "topics"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_ranks_of_mpi_make_one_model(more, tmp_path):
    path, out = write_uci(tmp_path), tmp_path / "model"
    same = "--passes", "40", "--transport", "mpi", "--out", out
    node = command("fit", path, *SMALL, *same, *more)
    ended = subprocess.run(["mpiexec", "-n", "2", *node], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("3 topics, 40 passes") == 1
    is_whole(out, read_corpus(path))


@pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or shutil.which("mpiexec") is None,
    reason="no mpi4py or no mpiexec: pip install 'esvi_shm[mpi-local]'",
)
def test_ranks_of_mpi_make_one_mixture(tmp_path):
    x, groups = blobs(200, 2, 3, seed=2)
    np.save(tmp_path / "X.npy", x)
    fit = command(
        "fit", tmp_path / "X.npy", *MIXTURE, "--workers", "1", "--transport", "mpi",
        "--holdout", "0.1", "--out", tmp_path / "model",
    )  # fmt: skip
    ended = subprocess.run(["mpiexec", "-n", "2", *fit], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("3 components (0 dead") == 1
    model = esvi_shm.load(tmp_path / "model")
    assert model.summary["n_nodes"] == 2
    assert model.summary["n_points"] == len(model.labels) == 180
    assert model.counts.sum() == pytest.approx(180, rel=1e-5)
    assert adjusted_rand_score(model.predict(x), groups) > 0.95


def test_points_may_be_a_file_of_each_node(tmp_path):
    x, _ = blobs(90, 2, 3, seed=2)
    nodes, started = free_addresses(2), []
    for rank, rows in enumerate((slice(0, 30), slice(30, None))):
        np.save(tmp_path / f"{rank}.npy", x[rows])
        fit = (tmp_path / f"{rank}.npy", *MIXTURE, "--workers", "1", "--corpus-part")
        started.append(start(*fit, "--out", tmp_path / "model", *over_tcp(nodes, rank)))
    for process in started:
        _, error = process.communicate()
        assert process.returncode == 0, error
    model = esvi_shm.load(tmp_path / "model")
    assert len(model.labels) == 90 and model.summary["n_points"] == 90
    assert (model.predict(x) == model.labels).mean() > 0.95


def test_options_of_mixtures_must_be_the_same_too():
    meeting, told = Meeting(2), []

    def agree(rank, **changed):
        config = FitConfig(family="gaussian", mixture=MixtureOptions(**changed))
        try:
            fit_nodes.agree(config, {}, meeting.peers[rank])
        except ParameterError as error:
            told.append(str(error))

    other = threading.Thread(target=agree, args=(1,), kwargs={"covariance": "full"})
    other.start()
    agree(0)
    other.join()
    rule = "covariance must be the same at all nodes ('diag' at node 0, 'full' at node 1)"
    assert sorted(told) == [f"{rule}, got 'diag'", f"{rule}, got 'full'"]


def test_each_node_may_have_a_file_of_its_own(tmp_path):
    whole = read_corpus(write_uci(tmp_path))
    matrix, nodes, out = whole.as_sparse(), free_addresses(2), tmp_path / "model"
    (tmp_path / "words").write_text("".join(f"{word}\n" for word in whole.vocabulary))
    write_key(tmp_path / "key")
    same = (
        "--vocabulary", tmp_path / "words", *SMALL, "--passes", "10", "--corpus-part",
        "--key-file", tmp_path / "key", "--out", out,
    )  # fmt: skip
    started = []
    for rank, rows in enumerate((slice(0, 17), slice(17, None))):
        part = tmp_path / f"part{rank}.npz"
        scipy.sparse.save_npz(part, matrix[rows])
        started.append(start(part, *same, *over_tcp(nodes, rank)))
    for process in started:
        _, error = process.communicate()
        assert process.returncode == 0, error
    assert (is_whole(out, whole).words == np.array(whole.vocabulary)).all()


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (("--topics", "4"), r"topics must be the same at all nodes \(3 at node 0, 4 at node 1\)"),
        (("--holdout", "0.2"), r"holdout must be the same at all nodes \(None at node 0, 0.2"),
        (("--plan",), r"plan must be the same at all nodes \(False at node 0, True at node 1\)"),
        (("--save-every", "2", "--out", "model"), r"save_every must be the same at all nodes"),
        (("--start-from", "two"), r"start_from must be the same at all nodes \('topics \w{16}' at"),
    ],
)
def test_nodes_that_were_not_asked_the_same_are_refused(others, told, tmp_path, monkeypatch):
    nodes, refused = free_addresses(2), []
    monkeypatch.chdir(tmp_path)
    for name, value in (("one", 1.0), ("two", 2.0)):
        store.save(make_model(value), tmp_path / name)
    of_first = ("--start-from", "one") if "--start-from" in others else ()

    def join(rank, *more):
        line = ["some.mtx", *SMALL, *map(str, over_tcp(nodes, rank)), *more]
        given = fit._parser().parse_args(line)
        with pytest.raises((ParameterError, PeerError), match=told) as caught:
            with fit_nodes.joined(given, fit._config(given)):
                raise AssertionError("the nodes go together")
        refused.append(caught.type)

    second = threading.Thread(target=join, args=(1, *others))
    second.start()
    join(0, *of_first)
    second.join()
    # One may hear of it by the other's last words.
    assert len(refused) == 2 and ParameterError in refused


def test_nodes_with_different_corpora_say_why(tmp_path):
    nodes = free_addresses(2)
    paths = write_uci(tmp_path), write_uci(tmp_path, n_documents=50, name="other")
    processes = [start(path, *SMALL, *over_tcp(nodes, j)) for j, path in enumerate(paths)]
    for process in processes:
        _, error = process.communicate()
        assert process.returncode in (1, 2), error
        assert "all nodes must read the same corpus, and that of node 1 differs" in error
    assert 2 in (process.returncode for process in processes)


@pytest.fixture
def long_fit(request, tmp_path):
    """Two nodes of a fit that would take very long, with its passes under way."""
    nodes = free_addresses(2)
    if getattr(request, "param", "lda") == "lda":
        of = write_uci(tmp_path, 400, 200), *SMALL
    else:
        np.save(tmp_path / "X.npy", blobs(900, 4, 3, seed=2)[0])
        of = tmp_path / "X.npy", *MIXTURE, "--workers", "1", "--tol", "0"
    processes = [
        start(
            *of, "--passes", "100000000", "--evaluate-every", "20", "--out",
            tmp_path / "model", *over_tcp(nodes, rank), process_group=0,
        )
        for rank in range(2)
    ]  # fmt: skip
    for line in processes[0].stderr:
        if line.startswith("pass 20:"):
            break
    else:
        raise AssertionError("the fit ended before its passes were under way")
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def test_a_signal_to_any_node_ends_the_fit_of_all(long_fit, tmp_path):
    long_fit[1].send_signal(signal.SIGINT)
    for process in long_fit:
        _, error = process.communicate()
        assert process.returncode == 0, error
        assert "WARNING: the fit was ended by SIGINT" in error
    assert esvi_shm.load(tmp_path / "model").summary["stopped"] == "SIGINT"


@pytest.mark.parametrize("long_fit", ["lda", "mixture"], indirect=True)
def test_a_node_that_is_killed_is_named_by_the_others(long_fit, tmp_path):
    long_fit[1].kill()
    _, error = long_fit[0].communicate(timeout=LIMIT)
    assert long_fit[0].returncode == 1
    assert "error: node 1 (127.0.0.1:" in error
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--rank", "1"), "--rank must come with --transport, got 1"),
        (("--corpus-part",), "--corpus-part must come with --transport"),
        (
            ("--transport", "tcp", "--corpus-part", "--holdout", "0.1"),
            "--holdout must be a file with corpus_part, got '0.1'",
        ),
        (("--transport", "pigeon"), "transport must be one of"),
        (("--transport", "tcp"), "nodes must"),
        (("--transport", "tcp", "--nodes", "127.0.0.1:1", "--rank", "1"), "rank must"),
        (("--transport", "tcp", "--nodes", "10.0.0.1:7600,10.0.0.2:7600", "--rank", "0"), "key"),
        (("--transport", "tcp", "--nodes", "x:1", "--rank", "0", "--deterministic"), "nodes"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_refused(arguments, told, tmp_path, capsys):
    assert fit.main([write_uci(tmp_path), *SMALL, *arguments]) == 2
    said = capsys.readouterr()
    assert told in said.err
    assert said.out == ""
