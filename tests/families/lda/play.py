"""Fits played in one process, looked at in the shapes of `tests.naive`; random cases for them."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.families.lda import listed
from esvi_shm.runtime.serial import SerialFit
from tests import naive


@dataclass
class Case:
    """A corpus, a configuration, and the order of visits in each of some passes."""

    counts: np.ndarray
    options: dict
    orders: list[list[tuple[int, int]]]

    def fit(self, **changes) -> SerialFit:
        """A fit of it; with storage `sparse` only where every row has places for all topics."""
        if changes.get("storage") == "sparse":
            assume(self.options["n_topics"] <= listed.SPARE)
        return play(self.counts, **{**self.options, **changes})


def play(counts: np.ndarray, vocabulary=None, **options) -> SerialFit:
    """A fit, with one worker and block unless told otherwise; `topk` keeps all topics then.

    Words settle once a pass, as far as their margins say (`cases` draws other ways): what there is
    beside the code knows no other.
    """
    plain = {"settle": 1, "relax": 1.0}
    options = {"n_workers": 1, "n_blocks": 1, "inference": "vb", **plain, **options}
    if options.get("storage") == "topk":
        options = {"topk": options["n_topics"], **options}
    return SerialFit(
        Corpus.from_sparse(counts.astype(np.float32), vocabulary), FitConfig(**options)
    )


@st.composite
def cases(draw, least_prior=1e-3, most_count=1e6, max_topics=20, starts=None):
    """Small corpora with empty documents, unused words, one of each, float and huge counts."""
    shape = draw(st.integers(1, 8)), draw(st.integers(1, 9))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = min(draw(st.sampled_from([1, 1, 3, 50, 1e6])), most_count)
    counts = random.integers(1, 1 + scale, shape) * (random.random(shape) < draw(st.floats(0, 0.9)))
    if draw(st.booleans()):
        counts = counts * random.random(shape)
    if not counts.any():
        counts[random.integers(shape[0]), random.integers(shape[1])] = 1

    n_topics = draw(st.integers(1, max_topics))
    exponents = st.floats(np.log10(least_prior), 1)

    def prior(length: int):
        if draw(st.booleans()):
            return 10.0 ** draw(exponents)
        return 10.0 ** np.array([draw(exponents) for _ in range(length)])

    n_workers, n_blocks = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    options = {
        "n_topics": n_topics,
        "alpha": prior(n_topics),
        "eta": prior(shape[1]),
        "n_workers": n_workers,
        "n_blocks": n_blocks,
        "start": draw(st.sampled_from(starts or ["seeded", "spread", "scikit-learn", "random"])),
        "inference": draw(st.sampled_from(["vb", "vb", "cvb0", "anneal"])),
        "cvb0_passes": 1,
        "temper_passes": draw(st.sampled_from([0, 0, 2])),
        "power": draw(st.sampled_from([1.0, 1.0, 0.9, 0.6, 0.3])),
        "leave_out": draw(st.sampled_from(["none", "token", "pair", "excess"])),
        "settle": draw(st.integers(1, 5)),
        "relax": draw(st.sampled_from([1.0, 1.0, 1.8])),
        "seed": draw(st.integers(0, 2**63 - 1)),
    }
    every = [(p, b) for p in range(n_workers) for b in range(n_blocks)]
    orders = [[every[i] for i in random.permutation(len(every))] for _ in range(3)]
    return Case(counts.astype(np.float32), options, orders)


class Seen(NamedTuple):
    """Everything that a fit holds, float64, in the order of the corpus."""

    gamma: np.ndarray  # (D, K)
    lambda_: np.ndarray  # (V, K)
    pi: np.ndarray  # (P, K), without eta
    phi_doc: np.ndarray  # (D, B, K)
    phi_word: np.ndarray  # (P, V, K)
    entropy: np.ndarray  # (P, B)


def words_of(fit: SerialFit, block: int) -> np.ndarray:
    """The words of a block."""
    first, last = fit.corpus_arrays["block_bounds"][block : block + 2]
    return fit.corpus_arrays["word_ids"][first:last]


def documents_of(fit: SerialFit, worker: int) -> range:
    """The documents of a shard; those of turn t of T are every T-th from t on."""
    return range(*fit.corpus_arrays["document_bounds"][worker : worker + 2])


def stored_phi(fit: SerialFit) -> np.ndarray:
    """phi (D, V, K) of a fit with storage `full` or `topk`; 0 where there is no count."""
    s = fit.sizes
    phi = np.zeros((s.n_documents, s.n_words, fit.config.n_topics))
    for p, shard in enumerate(fit.shards):
        documents = np.repeat(shard["row_doc"], np.diff(shard["row_ptr"]))
        words = fit.corpus_arrays["word_ids"][shard["word_row"][shard["pair_word"]]]
        if fit.config.storage == "full":
            of_pairs = shard["phi"]
        else:
            of_pairs = np.repeat(shard["rest"][:, None].astype(np.float64), phi.shape[2], axis=1)
            np.put_along_axis(of_pairs, shard["kept_topic"].astype(int), shard["kept"], axis=1)
        phi[documents_of(fit, p).start + documents, words] = of_pairs
    return phi


def margins_of(fit: SerialFit, counts: np.ndarray, phi: np.ndarray) -> tuple[np.ndarray, ...]:
    """Both margins of phi by their definition."""
    mass = counts[:, :, None].astype(np.float64) * phi
    blocks = [mass[:, words_of(fit, b)].sum(axis=1) for b in range(fit.sizes.n_blocks)]
    bounds = fit.corpus_arrays["document_bounds"]
    return np.stack(blocks, axis=1), np.stack([mass[a:b].sum(axis=0) for a, b in pairwise(bounds)])


def margin_of(fit: SerialFit, shard: dict, name: str) -> np.ndarray:
    """phi_doc or phi_word of a shard, by row, with a storage that has them."""
    if fit.config.storage == "sparse":
        none = np.zeros(fit.config.n_topics, np.float32)
        return np.asarray(listed.ListedRows(listed.of_arrays(name, shard, none)))
    return shard[name]


def put_margin(fit: SerialFit, shard: dict, name: str, rows: np.ndarray) -> None:
    """The other way round; with storage `sparse` they must have places."""
    if fit.config.storage != "sparse":
        shard[name][:] = rows
        return
    lists = listed.of_arrays(name, shard, np.zeros(fit.config.n_topics, np.float32))
    lists.rest[:] = 0.0
    lists.size[:] = (rows > 0).sum(axis=1)
    assert (lists.size <= np.diff(lists.first)).all()
    for i, row in enumerate(rows):
        places = slice(lists.first[i], lists.first[i] + lists.size[i])
        lists.topics[places] = np.flatnonzero(row)
        lists.values[places] = row[row > 0]


def look(fit: SerialFit, counts: np.ndarray) -> Seen:
    """All that the fit holds now."""
    s, n_topics = fit.sizes, fit.config.n_topics
    if fit.config.storage in ("full", "topk"):
        phi_doc, phi_word = margins_of(fit, counts, stored_phi(fit))
    else:
        phi_doc = np.zeros((s.n_documents, s.n_blocks, n_topics))
        phi_word = np.zeros((s.n_workers, s.n_words, n_topics))
        for p, shard in enumerate(fit.shards):
            first, rows = documents_of(fit, p).start, margin_of(fit, shard, "phi_doc")
            for c, (lo, hi) in enumerate(pairwise(shard["block_row_ptr"])):
                phi_doc[first + shard["row_doc"][lo:hi], c // s.n_turns] = rows[lo:hi]
            words = fit.corpus_arrays["word_ids"][shard["word_row"]]
            np.add.at(phi_word[p], words, margin_of(fit, shard, "phi_word"))
    return Seen(
        fit.gamma.astype(np.float64),
        fit.lambda_.astype(np.float64),
        fit.shared["pi"].copy(),
        phi_doc,
        phi_word,
        fit.shared["entropy"].copy(),
    )


def put(fit: SerialFit, counts: np.ndarray, phi: np.ndarray) -> None:
    """Have the fit hold this phi (D, V, K), and gamma, lambda and pi to match."""
    phi_doc, _ = margins_of(fit, counts, phi)
    n_turns = fit.sizes.n_turns
    for p, shard in enumerate(fit.shards):
        first = documents_of(fit, p).start
        words = fit.corpus_arrays["word_ids"][shard["word_row"]]
        if fit.config.storage in ("full", "topk"):
            documents = np.repeat(shard["row_doc"], np.diff(shard["row_ptr"]))
            of_pairs = phi[first + documents, words[shard["pair_word"]]]
            if fit.config.storage == "full":
                shard["phi"][:] = of_pairs
                continue
            n_kept = shard["kept"].shape[1]
            shard["kept_topic"][:] = np.argsort(-of_pairs, axis=1, kind="stable")[:, :n_kept]
            shard["kept"][:] = np.take_along_axis(of_pairs, shard["kept_topic"].astype(int), axis=1)
            others = 1 - shard["kept"].sum(axis=1, dtype=np.float64)
            shard["rest"][:] = others / max(fit.config.n_topics - n_kept, 1)
            continue
        rows = np.zeros((len(shard["row_doc"]), fit.config.n_topics), np.float32)
        for c, (lo, hi) in enumerate(pairwise(shard["block_row_ptr"])):
            rows[lo:hi] = phi_doc[first + shard["row_doc"][lo:hi], c // n_turns]
        put_margin(fit, shard, "phi_doc", rows)
        rows = np.zeros((len(words), fit.config.n_topics), np.float32)
        for c, (lo, hi) in enumerate(pairwise(shard["block_word_ptr"])):
            turn = list(documents_of(fit, p)[c % n_turns :: n_turns])
            sums = np.einsum("dv,dvk->vk", counts[turn], phi[turn])
            rows[lo:hi] = sums[words[lo:hi]]
        put_margin(fit, shard, "phi_word", rows)
    for name in ("sum_documents", "clear_words", "add_words"):
        for worker in fit.workers:
            worker.command(name)


def oracle_of(fit: SerialFit, counts: np.ndarray) -> naive.Lda:
    """The oracle at the state of a fit with storage `full` or `topk`."""
    eta = np.empty(fit.sizes.n_words)
    eta[fit.corpus_arrays["word_ids"]] = fit.shared["eta"]
    return naive.Lda(counts, stored_phi(fit), fit.shared["alpha"], eta)


def rule_of(fit: SerialFit, pass_: int) -> tuple[str, float, str]:
    """The inference, the power and what is left out in a pass, from 0."""
    options = fit.config
    inference = options.inference
    if inference == "anneal":
        inference = "cvb0" if pass_ < options.cvb0_passes else "vb"
    last = options.power or (0.9 if options.inference == "cvb0" else 1.0)
    first, done = min(0.8, last), 1.0
    if options.temper_passes:
        done = min(pass_ / options.temper_passes, 1.0)
    default = "excess" if options.inference == "cvb0" else "pair"
    leave_out = "none" if options.storage == "topk" else options.leave_out or default
    return inference, first + (last - first) * done, leave_out if inference == "cvb0" else "none"


def follow(lda: naive.Lda, fit: SerialFit, order: list[tuple[int, int]]) -> None:
    """The oracle makes the same visits, as in the pass that the fit is about to make."""
    lda.inference, lda.power, lda.leave_out = rule_of(fit, fit.passes)
    lda.relax = 1.0
    if fit.config.storage not in ("full", "topk"):
        lda.relax = fit.layout.model.schedule.relax(fit.passes)
    n_turns = fit.sizes.n_turns
    for p, b in order:
        for turn in range(n_turns):
            lda.visit(documents_of(fit, p)[turn::n_turns], words_of(fit, b))


def priors_of(fit):
    eta = np.empty(fit.sizes.n_words)
    eta[fit.corpus_arrays["word_ids"]] = fit.shared["eta"]
    return fit.shared["alpha"], eta


def bound_noise(counts) -> float:
    """Nats by which float32 may move the bound of so many tokens."""
    return 1e-4 + 2e-5 * float(counts.sum())


def assert_sums_hold(fit, counts):
    """At a quiescent point, when drift has just been removed."""
    seen, (alpha, eta) = look(fit, counts), priors_of(fit)
    tokens = counts.sum(dtype=np.float64)
    near = {"rtol": 3e-6, "atol": 1e-6}
    np.testing.assert_allclose(seen.gamma, alpha + seen.phi_doc.sum(axis=1), **near)
    np.testing.assert_allclose(seen.lambda_, eta[:, None] + seen.phi_word.sum(axis=0), **near)
    np.testing.assert_allclose(seen.pi, seen.phi_word.sum(axis=1), **near)
    np.testing.assert_allclose(seen.pi.sum(axis=0) + eta.sum(), seen.lambda_.sum(axis=0), rtol=1e-5)
    room = {"rtol": 2e-5, "atol": 1e-5}
    of_documents = counts.sum(axis=1, dtype=np.float64)
    np.testing.assert_allclose(seen.gamma.sum(axis=1), of_documents + alpha.sum(), **room)
    of_words = counts.sum(axis=0, dtype=np.float64)
    np.testing.assert_allclose(
        seen.lambda_.sum(axis=1), of_words + eta * fit.config.n_topics, **room
    )
    np.testing.assert_allclose(seen.pi.sum(), tokens, **room)
    for d in np.flatnonzero(of_documents == 0):
        assert (fit.gamma[d] == alpha.astype(np.float32)).all()
    for v in np.flatnonzero(of_words == 0):
        assert (fit.lambda_[v] == eta[v].astype(np.float32)).all()
