"""scikit-learn's idiom for mixtures: `BayesianGaussianMixture`'s names where they exist."""

import logging
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from esvi_shm.compile import compiling_is_told
from esvi_shm.config import FitConfig, choose
from esvi_shm.errors import ParameterError
from esvi_shm.estimators import own_names, seed_of
from esvi_shm.mixture import FittedMixture
from esvi_shm.mixture_holdout import set_aside
from esvi_shm.mixture_options import MixtureOptions
from esvi_shm.points import as_points
from esvi_shm.runtime import engine

_log = logging.getLogger(__name__)
#: Name here: name in FitConfig or MixtureOptions. Names that are the same are not listed.
_PARAMETERS = {
    "n_components": "n_topics",
    "covariance_type": "covariance",
    "init_params": "start",
    "max_iter": "n_passes",
    "means_init": "means",
    "random_state": "seed",
}
_STARTS = {"k-means++": "seeded", "random_from_data": "random"}
_OPTIONS = tuple(MixtureOptions.__dataclass_fields__)


class Mixture(ClusterMixin, BaseEstimator):
    """A mixture of an exponential family, fitted by worker processes that pass components around.

    Parameters
    ----------
    n_components : int
        K, an upper bound where the concentration is small: components may die.
    family : str
        gaussian, multinomial, bernoulli, poisson.
    covariance_type : str
        Of gaussian: diag (a product of Normal-Gammas), spherical, full (Normal-Wishart).
    weight_concentration_prior, mean_precision_prior, degrees_of_freedom_prior : float or None
    mean_prior, covariance_prior : array or None
    feature_prior : float or None
        See `MixtureOptions`.
    init_params : str
        k-means++ (on a sample) or random_from_data.
    means_init : array of shape (K, D) or None
    max_iter : int
        Passes over the points at most.
    tol : float
        Stop when the relative change of the ELBO between two evaluations is smaller; 0: never.
    evaluate_every, n_workers, n_blocks, restarts, restart_passes, max_time, route, deterministic
        As for `LDA`.
    holdout : float, points as for `fit`, or None
        A share of the points, or others, that the fit does not see: ``history_`` has their mean log
        likelihood, in nats.
    patience : int or None
        Stop when so many evaluations in a row bring no higher log likelihood of `holdout`.
    topk : int or None
        Responsibilities kept of each point, the largest; None: all.
    dense_passes : int or None
        With `topk`: passes that score a point against all components. In those that follow it is
        scored against those that it keeps, their neighbours and a few drawn at random, but for
        every tenth pass; what that leaves out is in ``model_.summary["ending"]``. None: 5.
    moves : bool
        After 3, 6, 10, 15... passes merge and split components, where that raises the bound.
    strict : bool
        Lemma 1 only within the block that a worker holds.
    random_state : int, RandomState or None

    Attributes
    ----------
    weights_ : array, shape (K,)
    means_, covariances_ : arrays
        Of gaussian; others have probabilities_ or rates_.
    lower_bound_ : float
        The ELBO of all points with all constants, in nats.
    labels_ : array, shape (N,)
    n_iter_, stopped_, history_, n_features_in_, model_

    Examples
    --------
    >>> points = np.array([[0.0], [0.1], [9.0], [9.1]] * 5)
    >>> mixture = Mixture(2, n_workers=1, random_state=0).fit(points)
    >>> mixture.predict(points[:4]).tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
    True
    """

    def __init__(
        self,
        n_components: int = 8,
        *,
        family: str = "gaussian",
        covariance_type: str = MixtureOptions.covariance,
        weight_concentration_prior: float | None = None,
        mean_precision_prior: float | None = None,
        mean_prior: Any = None,
        degrees_of_freedom_prior: float | None = None,
        covariance_prior: Any = None,
        feature_prior: float | None = None,
        init_params: str = "k-means++",
        means_init: Any = None,
        topk: int | None = None,
        dense_passes: int | None = None,
        moves: bool = True,
        strict: bool = False,
        max_iter: int = FitConfig.n_passes,
        tol: float = FitConfig.tol,
        evaluate_every: int = FitConfig.evaluate_every,
        restarts: int = FitConfig.restarts,
        restart_passes: int = FitConfig.restart_passes,
        holdout: Any = None,
        patience: int | None = None,
        max_time: float | None = None,
        route: str = FitConfig.route,
        n_workers: int | None = None,
        n_blocks: int | None = None,
        deterministic: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.family = family
        self.covariance_type = covariance_type
        self.weight_concentration_prior = weight_concentration_prior
        self.mean_precision_prior = mean_precision_prior
        self.mean_prior = mean_prior
        self.degrees_of_freedom_prior = degrees_of_freedom_prior
        self.covariance_prior = covariance_prior
        self.feature_prior = feature_prior
        self.init_params = init_params
        self.means_init = means_init
        self.topk = topk
        self.dense_passes = dense_passes
        self.moves = moves
        self.strict = strict
        self.max_iter = max_iter
        self.tol = tol
        self.evaluate_every = evaluate_every
        self.restarts = restarts
        self.restart_passes = restart_passes
        self.holdout = holdout
        self.patience = patience
        self.max_time = max_time
        self.route = route
        self.n_workers = n_workers
        self.n_blocks = n_blocks
        self.deterministic = deterministic
        self.random_state = random_state

    def _config(self) -> FitConfig:
        choose("init_params", self.init_params, _STARTS)
        values = {_PARAMETERS.get(n, n): v for n, v in self.get_params(deep=False).items()}
        values["start"], values["seed"] = _STARTS[self.init_params], seed_of(self.random_state)
        del values["holdout"]
        if isinstance(self.family, str) and self.family == "lda":
            raise ParameterError("family", "must be a mixture: topics are fitted by LDA", "lda")
        options = MixtureOptions(**{name: values.pop(name) for name in _OPTIONS})
        return FitConfig(**values, mixture=options)

    def fit(self, X: Any, y: Any = None) -> "Mixture":
        """Fit to points: an array or sparse matrix of shape (N, D), `Points`, or a path.

        Raises InputError for bad points or parameters.
        """
        with own_names(_PARAMETERS), compiling_is_told(_log):
            config = self._config()
            engine.check(config, self.holdout is not None)
            points, every, judge = as_points(X), None, None
            if self.holdout is not None:
                given = self.holdout, config.family, config.mixture, config.seed
                every, (points, judge) = points, set_aside(points, *given)
            result = engine.fit(points, config, judge=judge)
        about = judge.describe() if judge else None
        self.model_ = FittedMixture.from_result(result, points, about)
        self.weights_, self.labels_ = self.model_.weights, self.model_.labels
        if every is not None and every is not points:  # those held out have none yet
            self.labels_ = self.model_.predict(every)
        for name in ("means", "covariances", "probabilities", "rates"):
            self.__dict__.pop(f"{name}_", None)  # of a fit of another family
        for name, value in self.model_.parameters().items():
            setattr(self, f"{name}_", value)
        self.lower_bound_, self.history_ = self.model_.elbo, self.model_.history
        self.n_iter_, self.stopped_ = self.history_[-1].passes, result.stopped
        self.n_features_in_ = points.n_features
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The most probable component of each point."""
        check_is_fitted(self)
        return self.model_.predict(X)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Responsibilities of the components for each point."""
        check_is_fitted(self)
        return self.model_.predict_proba(X)

    def score_samples(self, X: Any) -> np.ndarray:
        """See `FittedMixture.score_samples`."""
        check_is_fitted(self)
        return self.model_.score_samples(X)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def save(self, folder: str) -> None:
        """Write the model directory, which ``esvi_shm.load`` reads."""
        check_is_fitted(self)
        self.model_.save(folder)

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Points drawn from the model, and their components."""
        check_is_fitted(self)
        return self.model_.sample(n_samples, seed_of(self.random_state))
