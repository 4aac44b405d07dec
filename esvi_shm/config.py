"""One frozen, validated description of a fit; every entry (shell, Python) fills in the same one.

Only ranges are checked here. Names of families, routes, storages and starts are checked by the
rooms that hold them, with the list of what they know.
"""

import hashlib
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from esvi_shm.errors import ParameterError
from esvi_shm.mixture_options import MixtureOptions

Prior = float | np.ndarray

#: Below 1e-6 digamma(prior) leaves float32 no digits for anything else.
LEAST_PRIOR, MOST_PRIOR = 1e-6, 1e6
#: More documents for a topic are the corpus.
MOST_SEED_DOCUMENTS = 1000
#: Each time all words are gone through: what is a slip would never end.
MOST_SETTLE = 1000


def _whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ParameterError(name, "must be a whole number", value)
    if value < least:
        raise ParameterError(name, f"must be at least {least}", value)
    if value >= 2**63 or (value >= 2**31 and name != "seed"):
        raise ParameterError(name, f"must be less than 2**{63 if name == 'seed' else 31}", value)


def _number(name: str, value: Any, rule: str, holds: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ParameterError(name, "must be a number", value)
    # Not math.isfinite: it fails on whole numbers that no float holds.
    if value == math.inf or not holds(value):
        raise ParameterError(name, f"must be {rule}", value)


def check_workers(n_workers: Any) -> None:
    """Raise ParameterError unless `n_workers` is a whole number from 1 on."""
    _whole("n_workers", n_workers, 1)


def size_in_bytes(name: str, value: Any) -> int:
    """The bytes that a size says: a whole number, or a number with a binary suffix.

    >>> size_in_bytes("max_memory", "1.5G")
    1610612736
    """
    rule = "must be a whole number of bytes from 1 on, or a number with K, M, G or T (binary)"
    if isinstance(value, str):
        found = re.fullmatch(r"(\d+|\d+\.\d+)([KMGT])(?:iB)?|(\d+)", value.strip(), re.I | re.A)
        if found is None:
            raise ParameterError(name, rule, value)
        number, unit, whole = found.groups()
        n_bytes = int(whole or float(number) * 1024 ** ("KMGT".index(unit.upper()) + 1))
    elif isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ParameterError(name, rule, value)
    else:
        n_bytes = int(value)
    if not 1 <= n_bytes < 2**63:
        raise ParameterError(name, rule, value)
    return n_bytes


def _flag(name: str, value: Any) -> bool:
    # "no" and "False" are true to Python.
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(name, "must be True or False", value)
    return bool(value)


def choose(name: str, value: str, known: Iterable[str]) -> str:
    """`value` if it is one of `known`.

    >>> choose("route", "lap", ["lap", "ring"])
    'lap'
    """
    known = sorted(known)
    if not isinstance(value, str) or value not in known:
        raise ParameterError(name, f"must be one of {', '.join(known)}", value)
    return value


def _also(learned: str, name: str) -> str:
    """`learned`, a value of learn_priors, and the prior `name` too."""
    if {learned, name} == {"alpha", "eta"}:
        return "both"
    return name if learned == "none" else learned


def prior_vector(name: str, value: Prior, length: int) -> np.ndarray:
    """A prior as a float64 vector: a scalar is repeated, a vector must have `length` values > 0.

    A repeated scalar takes no memory: sizes are not yet checked against it when this is called.

    >>> prior_vector("alpha", 0.1, 2)
    array([0.1, 0.1])
    """
    vector = np.asarray(value, dtype=np.float64)
    if vector.ndim == 0:
        return np.broadcast_to(vector, (length,))
    if vector.shape != (length,):
        got = len(vector) if vector.ndim == 1 else vector
        raise ParameterError(name, f"must be a number or have {length} values", got)
    return np.ascontiguousarray(vector)


@dataclass(frozen=True, eq=False)
class GivenTopics:
    """Topics that a fit starts from.

    Attributes
    ----------
    lambda_ : float array, shape (V', K')
        Dirichlet parameters, a row for each word. Only read.
    words : sequence of str, length V'
    source : str
        What they are called in messages and in the summary; "" says nothing of their words.

    Raises
    ------
    ParameterError
        If the shapes do not match, or a number is not finite and greater than 0.

    Examples
    --------
    >>> GivenTopics(np.array([[2.0, 0.1], [0.1, 1.0]]), ["tea", "milk"], "mine").lambda_.shape
    (2, 2)
    """

    lambda_: np.ndarray
    words: Sequence[str]
    source: str

    def digest(self) -> str:
        """SHA-256 of the words and their parameters."""
        digest = hashlib.sha256(repr(list(self.words)).encode("utf-8", "surrogatepass"))
        for row in self.lambda_:
            digest.update(np.ascontiguousarray(row).tobytes())
        return digest.hexdigest()

    def __post_init__(self) -> None:
        shape = np.shape(self.lambda_)
        if len(shape) != 2 or shape[0] != len(self.words) or 0 in shape:
            rule = f"must have a row for each of its {len(self.words)} words, a column a topic"
            raise ParameterError("start_from", rule, shape)
        least, most = float(self.lambda_.min()), float(self.lambda_.max())
        if not (least > 0 and most < math.inf):
            rule = "must have Dirichlet parameters greater than 0"
            raise ParameterError("start_from", rule, most if least > 0 else least)


@dataclass(frozen=True)
class FitConfig:
    """What to fit and how; see `python -m esvi_shm.fit --help` for the meaning of each.

    Attributes
    ----------
    n_topics : int
    alpha, eta : float, array or "auto"
        Dirichlet priors per topic (a document's) and per word (a topic's); not divided by K or V.
        "auto" begins with the default and learns it.
    learn_priors : str
        Which of them the fit learns, from what is given: none, alpha, eta (one number), both.
    symmetric_alpha : bool
        A learned alpha is one number for all topics.
    n_workers : int or None
        None: the cores this process may use.
    n_blocks : int or None
        None: by the length of the documents and the number of workers.
    cvb0_passes : int or None
        Of inference `anneal`: passes of cvb0 before those of vb. None: half of all, at most 50;
        then, but where active sets may be chosen, a fifth of all, at most 20, are of both, those of
        cvb0 ever rarer.
    temper_passes : int or None
        Passes in which the responsibilities are tempered more and more lightly; 0: none. None:
        seven tenths of all, at most 70, and none with inference `vb`.
    power : float or None
        Power of the responsibilities' factors from then on; 1: not tempered. None: 1, and 0.9 with
        inference `cvb0`.
    leave_out : str or None
        What cvb0 takes out of the counts by which it places a pair: none, token (one of its own),
        pair (all of them), excess (half as many again). None: pair; with inference `cvb0` excess,
        and over-relaxed none in the first two thirds of the passes, at most 25.
    settle : int or None
        How often a pass all workers together put what they found of a word into its parameters, at
        least: each worker's documents take turns. None: once each; 2 to 4, by how many pairs a
        word has, with inference `cvb0`, or `anneal` below 512 topics, by storage `margins` or
        `sparse` and without `dense_passes`.
    relax : float or None
        Step of a word's expected counts from their last value to the new one, in the first five
        sixths of cvb0's passes, at most 80; above 1: over-relaxed. None: 1, or 1.8 where `settle`
        is 2 to 4 then.
    refold_after : tuple of int
        Numbers of passes after which all documents are folded in afresh.
    noise : float
        Strength s of noise in the first pass: the factor of each word in each topic is multiplied
        by exp(s x normal) at every visit, with s going down to 0 over `noise_passes`.
    dense_passes : int or None
        Passes that update every pair over all topics; in those that follow, a pair moves only
        among the topics that its document and its word live in. None: all passes by cvb0, and of
        fewer than 512 topics; else 20, and more until documents live in at most an eighth of the
        topics, and where the others would cost more. Of mixtures that keep the largest
        responsibilities: passes that score a point against all components; in those that follow it
        is scored against those near it. None: 5.
    noise_passes : int or None
        None: three fifths of all passes, at most 60; with inference `vb` 15.
    seed_documents : int or None
        Documents that each topic starts from. None: as `start` does by default.
    start_from : GivenTopics or None
        Topics to start the first ones from.
    seed_words : tuple of tuple of str
        Words that the first topics start from; an empty tuple leaves a topic to `start`.
    restarts : int
        Starts that are tried by a short fit each; the best one goes on.
    restart_passes : int
        Passes of a short fit.
    repair_after : tuple of int
        Numbers of passes after which topics that are dead or double begin anew, on trial.
    axis : str
        What travels: words or topics.
    topk : int or None
        Responsibilities kept for each pair by storage `topk`. None: a quarter of the topics. Of
        mixtures: of each point; None: all.
    residual : str
        What storage `topk` does with the rest of their mass: spread, drop.
    storage : str or None
        How the responsibilities are held: margins, sparse, full, topk. None: margins, or what
        `max_memory` has room for.
    max_memory : int, str or None
        Bytes that all processes together may take by the plan; also as "8G", see `size_in_bytes`.
    scratch : str or None
        Folder for files that hold the shared arrays where /dev/shm or memory is short.
    n_passes : int
    evaluate_every : int
        Passes between evaluations of the bound; 0 evaluates at the end only.
    tol : float
        Stop when the relative change of the objective (the ELBO at the responsibilities held; under
        cvb0 its own) between evaluations is below this, once the updates have settled; 0 never.
    patience : int or None
        Stop when so many evaluations in a row bring no better prediction of the held-out text, once
        the updates have settled; None never.
    max_time : float or None
        Seconds of fitting after which the fit ends.
    seed : int
    mixture : MixtureOptions or None
        What only families of mixtures know of; there `n_topics` is the number of components.

    Raises
    ------
    ParameterError
        For a value out of its range.

    Examples
    --------
    >>> FitConfig(n_topics=20).alpha
    0.1
    """

    n_topics: int = 50
    family: str = "lda"
    inference: str = "anneal"
    cvb0_passes: int | None = None
    temper_passes: int | None = None
    power: float | None = None
    leave_out: str | None = None
    settle: int | None = None
    relax: float | None = None
    refold_after: tuple[int, ...] = ()
    noise: float = 0.0
    noise_passes: int | None = None
    dense_passes: int | None = None
    repair_after: tuple[int, ...] = ()
    alpha: Prior = 0.1
    eta: Prior = 0.05
    learn_priors: str = "none"
    symmetric_alpha: bool = False
    storage: str | None = None
    axis: str = "words"
    topk: int | None = None
    residual: str = "spread"
    start: str = "seeded"
    seed_documents: int | None = None
    start_from: GivenTopics | None = None
    seed_words: tuple[tuple[str, ...], ...] = ()
    restarts: int = 1
    restart_passes: int = 20
    n_workers: int | None = None
    n_blocks: int | None = None
    route: str = "lap"
    max_memory: int | None = None
    scratch: str | None = None
    deterministic: bool = False
    n_passes: int = 100
    evaluate_every: int = 10
    tol: float = 1e-4
    patience: int | None = None
    max_time: float | None = None
    seed: int = 0
    mixture: MixtureOptions | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            if isinstance(value := getattr(self, field.name), np.generic):
                object.__setattr__(self, field.name, value.item())  # JSON knows no other numbers
        for name in ("alpha", "eta"):
            if isinstance(getattr(self, name), str) and getattr(self, name) == "auto":
                object.__setattr__(self, name, getattr(type(self), name))
                object.__setattr__(self, "learn_priors", _also(self.learn_priors, name))
        _whole("n_topics", self.n_topics, 1)
        _whole("n_passes", self.n_passes, 0)
        _whole("evaluate_every", self.evaluate_every, 0)
        _whole("restarts", self.restarts, 1)
        _whole("restart_passes", self.restart_passes, 1)
        for name in ("cvb0_passes", "temper_passes", "noise_passes", "dense_passes"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 0)
        _whole("seed", self.seed, 0)
        for name in ("deterministic", "symmetric_alpha"):
            object.__setattr__(self, name, _flag(name, getattr(self, name)))
        for name in ("refold_after", "repair_after"):
            given = getattr(self, name)
            given = list(given) if np.iterable(given) and not isinstance(given, str) else [given]
            for n in given:
                _whole(name, n, 1)
            object.__setattr__(self, name, tuple(map(int, given)))
        for name in ("n_workers", "n_blocks", "patience", "topk", "settle"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 1)
        if self.power is not None:
            _number("power", self.power, "greater than 0 and at most 1", lambda x: 0 < x <= 1)
            object.__setattr__(self, "power", float(self.power))
        if self.relax is not None:
            _number("relax", self.relax, "at least 1 and less than 2", lambda x: 1 <= x < 2)
            object.__setattr__(self, "relax", float(self.relax))
        _number("tol", self.tol, "at least 0", lambda x: x >= 0)
        if self.max_time is not None:
            _number("max_time", self.max_time, "greater than 0", lambda x: x > 0)
        _number("noise", self.noise, "between 0 and 10", lambda x: 0 <= x <= 10)
        if self.seed_documents is not None:
            _whole("seed_documents", self.seed_documents, 1)
        for name, most in (("seed_documents", MOST_SEED_DOCUMENTS), ("settle", MOST_SETTLE)):
            if (getattr(self, name) or 0) > most:
                raise ParameterError(name, f"must be at most {most}", getattr(self, name))
        if not isinstance(self.start_from, GivenTopics | None):
            raise ParameterError("start_from", "must be GivenTopics", self.start_from)
        if self.max_memory is not None:
            n_bytes = size_in_bytes("max_memory", self.max_memory)
            object.__setattr__(self, "max_memory", n_bytes)
        if self.scratch is not None:
            if not isinstance(self.scratch, str | os.PathLike):
                raise ParameterError("scratch", "must be the path of a folder", self.scratch)
            object.__setattr__(self, "scratch", os.fspath(self.scratch))
        if not isinstance(self.mixture, MixtureOptions | None):
            raise ParameterError("mixture", "must be MixtureOptions", self.mixture)
        self._check_seed_words()
        for name in ("alpha", "eta"):
            self._check_prior(name, getattr(self, name))

    def _check_seed_words(self) -> None:
        rule = "must be a list of words for each topic"
        if isinstance(self.seed_words, str) or not isinstance(self.seed_words, Iterable):
            raise ParameterError("seed_words", rule, self.seed_words)
        seed_words: list[tuple[str, ...]] = []
        if isinstance(self.seed_words, np.ndarray) and self.seed_words.ndim == 0:
            raise ParameterError("seed_words", rule, self.seed_words)
        for words in self.seed_words:  # once: it may be a generator, and so may each
            if isinstance(words, str) or not isinstance(words, Iterable):
                raise ParameterError("seed_words", rule, words)
            seed_words.append(tuple(words))
            for word in seed_words[-1]:
                if not isinstance(word, str):
                    raise ParameterError("seed_words", rule, word)
        object.__setattr__(self, "seed_words", tuple(seed_words))

    @staticmethod
    def _check_prior(name: str, value: Any) -> None:
        try:
            given = np.asarray(value)
        except ValueError:  # lists of different lengths
            given = np.array([""])
        if given.ndim == 0:
            _number(name, value, "greater than 0", lambda x: x > 0)
            values = [value]
        elif given.dtype.kind not in "iuf":
            raise ParameterError(name, "must be a number or a vector of numbers", value)
        else:
            values = given.astype(np.float64).ravel().tolist()
        for x in values:
            if not LEAST_PRIOR <= x <= MOST_PRIOR:
                raise ParameterError(name, "must lie between 1e-6 and 1e6", x)

    def start_seed(self, restart: int) -> int:
        """The seed of a start; that of the first one is `seed` itself.

        >>> config = FitConfig(seed=7)
        >>> config.start_seed(0), config.start_seed(1) == config.start_seed(2)
        (7, False)
        """
        if restart == 0:
            return self.seed
        words = np.random.SeedSequence([self.seed, restart]).generate_state(1, np.uint64)
        return int(words[0] >> np.uint64(1))  # below 2**63, as every seed

    def as_dict(self) -> dict[str, Any]:
        """The configuration in types that JSON knows."""
        plain = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray | np.generic):
                value = value.tolist()
            elif isinstance(value, MixtureOptions):
                value = value.as_dict()
            elif isinstance(value, GivenTopics):
                value = value.source
            elif isinstance(value, tuple):
                value = [list(x) if isinstance(x, tuple) else x for x in value]
            plain[field.name] = value
        return plain
