"""Topics that the user gives: those of a model, or words for each; and what is wrong with them.

Topics of a model are E(lambda) / E(pi) by the rule of the first pass, matched by word. A word
that the model does not know has there what a word without a token has, the prior eta.

A topic of seed words is half the corpus's distribution, half its words at equal weight.
"""

import logging
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from esvi_shm.config import FitConfig
from esvi_shm.corpus.corpus import Corpus, numbers_of
from esvi_shm.corpus.held import AnyCorpus
from esvi_shm.errors import ParameterError
from esvi_shm.families.lda.schedule import Schedule
from esvi_shm.families.lda.starts.scikit_learn import expected_rows

_log = logging.getLogger(__name__)

#: Word rows of a model that are looked at together.
CHUNK = 4096
#: See `writer`.
Writer = Callable[[np.ndarray, np.ndarray], None]


def check(config: FitConfig) -> None:
    """Refuse numbers of given topics that do not fit the number of topics."""
    if config.start_from is not None:
        n_given = config.start_from.lambda_.shape[1]
        if n_given > config.n_topics:
            rule = f"must be a model of at most {config.n_topics} topics"
            raise ParameterError("start_from", rule, n_given)
        if config.seed_words:
            rule = "cannot be given together with %s"
            raise ParameterError("seed_words", rule, config.seed_words[0], "start_from")
        if n_given == config.n_topics and config.restarts > 1:
            rule = "must be 1 where %s gives all topics: all starts would be the same"
            raise ParameterError("restarts", rule, config.restarts, "start_from")
    if len(config.seed_words) > config.n_topics:
        rule = f"must be for at most {config.n_topics} topics (one a line)"
        raise ParameterError("seed_words", rule, len(config.seed_words))


def check_words(config: FitConfig, corpus: Corpus) -> None:
    """Refuse given topics without a word of the corpus, and seed words that do not occur."""
    if config.start_from is not None:
        known = int(np.count_nonzero(_numbers_in_model(config, corpus) >= 0))
        if known == 0:
            rule = f"must share words with the corpus {corpus.name}"
            raise ParameterError("start_from", rule, config.start_from.source)
        level = logging.INFO if known == corpus.n_words else logging.WARNING
        if config.start_from.source:
            _log.log(
                level,
                "%s has %d of the %d words of %s",
                config.start_from.source, known, corpus.n_words, corpus.name,
            )  # fmt: skip
    if config.seed_words:
        _check_seed_words(config, corpus)


def topics_of(config: FitConfig) -> list[int]:
    """The topics that are given."""
    if config.start_from is not None:
        return list(range(config.start_from.lambda_.shape[1]))
    return [k for k, words in enumerate(config.seed_words) if words]


def writer(config: FitConfig, corpus: AnyCorpus, eta: np.ndarray) -> Writer:
    """What writes the given topics into a part of lambda, called with it and the words' rows.

    Parameters
    ----------
    config : FitConfig
    corpus : Corpus or HeldCorpus
    eta : float64 array, shape (V,)
        By word.

    Returns
    -------
    callable
        Of float32 topics, shape (n, K), with half the corpus's distribution in each, of which the
        given columns are finished; and the row of each word there, int64 (V,), -1: elsewhere.
    """
    if config.start_from is not None:
        return _model_writer(config, corpus, eta)
    given: dict[int, np.ndarray] = {}
    if config.seed_words:
        assert corpus.vocabulary is not None  # see `check_words`
        given = _seed_numbers(config, corpus.vocabulary)

    def write(topics: np.ndarray, row_of_word: np.ndarray) -> None:
        for k, words in given.items():
            rows = row_of_word[words]
            topics[rows[rows >= 0], k] += 0.5 / len(words)

    return write


def _model_writer(config: FitConfig, corpus: AnyCorpus, eta: np.ndarray) -> Writer:
    assert config.start_from is not None
    lambda_ = config.start_from.lambda_
    n_given = lambda_.shape[1]
    numbers = _numbers_in_model(config, corpus)

    def rows_of(words: np.ndarray) -> np.ndarray:
        chunk = np.repeat(eta[words, None].astype(np.float32), n_given, axis=1)
        known = numbers[words] >= 0
        chunk[known] = lambda_[numbers[words][known]]
        return chunk

    pi, cvb0 = np.zeros(n_given), Schedule(config).cvb0(0)
    for words in _chunks(np.arange(corpus.n_words)):
        pi += rows_of(words).sum(axis=0, dtype=np.float64)

    def write(topics: np.ndarray, row_of_word: np.ndarray) -> None:
        for words in _chunks(np.flatnonzero(row_of_word >= 0)):
            rows = rows_of(words)
            if cvb0:
                rows /= pi
            else:
                # Beside topics that are not given a word's share of each is to be what it is.
                expected_rows(rows, pi, n_given == config.n_topics)
            topics[row_of_word[words], :n_given] = rows

    return write


def _chunks(words: np.ndarray) -> Iterator[np.ndarray]:
    for first in range(0, len(words), CHUNK):
        yield words[first : first + CHUNK]


def _numbers_in_model(config: FitConfig, corpus: AnyCorpus) -> np.ndarray:
    """The model's number of each word of the corpus, int64 (V,); -1 where it has none."""
    assert config.start_from is not None
    number_of = numbers_of(config.start_from.words)
    return np.array([number_of.get(corpus.word(v), -1) for v in range(corpus.n_words)], np.int64)


def _seed_numbers(config: FitConfig, vocabulary: Sequence[str]) -> dict[int, np.ndarray]:
    """The numbers of the seed words of each topic that has some; -1 for an unknown one."""
    number_of = numbers_of(vocabulary)
    return {
        k: np.unique([number_of.get(word, -1) for word in words])
        for k, words in enumerate(config.seed_words)
        if words
    }


def _check_seed_words(config: FitConfig, corpus: Corpus) -> None:
    if corpus.vocabulary is None:
        rule = f"must have a vocabulary to be found in, and {corpus.name} has none: name its words"
        raise ParameterError("seed_words", rule, config.seed_words[0])
    occurs = np.zeros(corpus.n_words + 1, bool)  # the last one is that of unknown words
    occurs[:-1] = corpus.whole.pairs_per_word() > 0
    for k, numbers in _seed_numbers(config, corpus.vocabulary).items():
        if not occurs[numbers].all():
            known = {corpus.vocabulary[v] for v in numbers[occurs[numbers]]}
            rule = (
                f"must occur in {corpus.name}: topic {k} (line {k + 1} of a file) has words that "
                "do not"
            )
            missing = [word for word in config.seed_words[k] if word not in known]
            raise ParameterError("seed_words", rule, ", ".join(missing))
