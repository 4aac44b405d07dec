"""LDA by variational inference in plain NumPy, float64, straight from the equations.

The oracle of the kernels: it stores phi of every (document, word), is as slow as it looks, and
shares no code with the package. Arrays are dense and in the order of the vocabulary: counts
(D, V), gamma (D, K), lambda_ (V, K), phi (D, V, K).

    phi_dvk  proportional to  exp(digamma(gamma_dk) + digamma(lambda_vk) - digamma(pi_k))
    gamma_dk = alpha_k + sum_v n_dv phi_dvk
    lambda_vk = eta_v + sum_d n_dv phi_dvk,   pi_k = sum_v lambda_vk

and for inference cvb0 the logarithm in place of digamma, with m tokens of the pair's own left out:

    m phi = (m / s) w / (1 + (m / s) w (1 / gamma_dk + 1 / lambda_vk)),   w the phi from above,

with s from 1 on, put at its sum over topics twice.

Source: Blei, Ng, Jordan 2003; Hoffman et al. 2013; Zhang et al. 2019, Algorithm 3.
"""

import itertools
from collections.abc import Iterable

import numpy as np
from scipy.special import gammaln, logsumexp, psi, softmax


class Lda:
    """The variables of one fit, with gamma and lambda at their sums.

    Parameters
    ----------
    counts : array, shape (D, V)
    phi : array, shape (D, V, K)
        Only that of pairs with a count matters.
    alpha, eta : arrays, shapes (K,), (V,)
    inference : str
        vb or cvb0; like `power`, of the tempered updates, and `leave_out` (see `left_out`) it may
        be changed between visits.

    What `keep` says, (C, residual), is done to each new phi of `visit`; see `keep_largest`.
    """

    def __init__(
        self,
        counts: np.ndarray,
        phi: np.ndarray,
        alpha: np.ndarray,
        eta: np.ndarray,
        inference: str = "vb",
    ) -> None:
        self.inference, self.power, self.leave_out = inference, 1.0, "none"
        self.relax = 1.0
        self.beyond: dict[tuple[int, ...], np.ndarray] = {}
        self.keep: tuple[int, str] | None = None
        self.counts = np.asarray(counts, np.float64)
        self.phi = np.array(phi, np.float64)
        self.alpha, self.eta = np.asarray(alpha, np.float64), np.asarray(eta, np.float64)
        mass = self.counts[:, :, None] * self.phi
        self.gamma = self.alpha + mass.sum(axis=1)
        self.lambda_ = self.eta[:, None] + mass.sum(axis=0)

    @property
    def pi(self) -> np.ndarray:
        """Column sums of lambda, shape (K,)."""
        return self.lambda_.sum(axis=0)

    def visit(
        self, documents: Iterable[int], words: np.ndarray, pi: np.ndarray | None = None
    ) -> None:
        """One block of words at one shard of documents, as the engine does it.

        Within a visit lambda and pi stay as they were when it began. Document by document: phi
        of all its pairs in the block from gamma_d now, then gamma_d. At the end lambda, where with
        `relax` above 1 each word's sums over these documents go further than to the new ones;
        `beyond` is by how much.
        """
        pi = self.pi if pi is None else pi
        lambda_, documents = self.lambda_.copy(), tuple(documents)
        beyond = self.beyond.setdefault(documents, np.zeros_like(lambda_))
        old = self.words_sums(documents)[words] + beyond[words]
        self._visit_documents(documents, words, lambda_, pi)
        new = self.words_sums(documents)[words]
        further = go_further(old, new, self.relax)
        self.lambda_[words] += further - old
        beyond[words] = further - new

    def words_sums(self, documents: tuple[int, ...]) -> np.ndarray:
        """sum over these documents of n phi, shape (V, K)."""
        at = list(documents)
        return np.einsum("dv,dvk->vk", self.counts[at], self.phi[at])

    def _visit_documents(
        self, documents: Iterable[int], words: np.ndarray, lambda_: np.ndarray, pi: np.ndarray
    ) -> None:
        for d in documents:
            present = words[self.counts[d, words] > 0]
            amount = left_out(self.counts[d, present], self.leave_out)
            new = responsibilities(
                self.gamma[d], lambda_[present], pi, self.inference, self.power, amount
            )
            if self.keep is not None:
                new = keep_largest(new, *self.keep)
            change = self.counts[d, present, None] * (new - self.phi[d, present])
            self.phi[d, present] = new
            self.gamma[d] += change.sum(axis=0)

    def visit_topics(
        self, documents: Iterable[int], blocks: list[np.ndarray], topics: np.ndarray
    ) -> None:
        """Some topics at one shard: phi on them alone (Lemma 1), one block of words after another.

        Within a block lambda and pi stay as they were when it began.
        """
        for words in blocks:
            lambda_, pi = self.lambda_.copy(), self.pi
            for d in documents:
                present = words[self.counts[d, words] > 0]
                there = np.ix_([d], present, topics)
                old = self.phi[there][0]
                new = old.sum(axis=1, keepdims=True) * responsibilities(
                    self.gamma[d, topics], lambda_[np.ix_(present, topics)], pi[topics],
                    self.inference, self.power,
                )  # fmt: skip
                change = self.counts[d, present, None] * (new - old)
                self.phi[there] = new
                self.gamma[d, topics] += change.sum(axis=0)
                self.lambda_[np.ix_(present, topics)] += change

    def token_pass(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Algorithm 3 to the letter: gamma, lambda and pi are refreshed after every pair."""
        for d, v in pairs:
            self.visit([d], np.array([v]))

    def batch_pass(self, documents_steps: int = 100) -> None:
        """Textbook batch inference: every document to its fixed point, then lambda."""
        for d in range(len(self.counts)):
            present = np.flatnonzero(self.counts[d])
            n = self.counts[d, present]
            for _ in range(documents_steps):
                phi = responsibilities(
                    self.gamma[d], self.lambda_[present], self.pi, self.inference
                )
                self.gamma[d] = self.alpha + n @ phi
                self.phi[d, present] = phi
        self.lambda_ = self.eta[:, None] + np.einsum("dv,dvk->vk", self.counts, self.phi)

    def refold(self, blocks: list[np.ndarray], n_sweeps: int) -> None:
        """Every document afresh from uniform phi, block by block, under the topics as they are."""
        lambda_, pi = self.lambda_.copy(), self.pi
        self.beyond, relax, self.relax = {}, self.relax, 1.0
        self.phi[:] = 1 / len(self.alpha)
        self.gamma = self.alpha + self.counts.sum(axis=1, keepdims=True) / len(self.alpha)
        for _ in range(n_sweeps):
            for words in blocks:
                self.lambda_ = lambda_.copy()
                self.visit(range(len(self.counts)), words, pi)
        self.relax = relax
        self.lambda_ = self.eta[:, None] + np.einsum("dv,dvk->vk", self.counts, self.phi)

    def entropy(self) -> float:
        """Of phi, over all tokens."""
        return float(-np.sum(self.counts[:, :, None] * _x_log_x(self.phi)))

    def bound_f(self) -> float:
        """The evidence lower bound at this phi, with gamma and lambda at their sums."""
        return float(
            np.sum(log_beta(self.gamma) - log_beta(self.alpha))
            + np.sum(log_beta(self.lambda_.T) - log_beta(self.eta))
            + self.entropy()
        )

    def objective_cvb0(self) -> float:
        """sum n phi log(theta beta / phi) + sum alpha log theta + sum eta log beta."""
        log_theta = np.log(self.gamma / self.gamma.sum(axis=1, keepdims=True))
        log_topics = np.log(self.lambda_ / self.pi)
        mass = self.counts[:, :, None] * self.phi
        likelihood = np.sum(mass * (log_theta[:, None] + log_topics))
        priors = np.sum(self.alpha * log_theta) + np.sum(self.eta[:, None] * log_topics)
        return float(likelihood + priors) + self.entropy()

    def bound_l(self) -> float:
        """The evidence lower bound of gamma and lambda at the best phi for them."""
        return bound_l(self.counts, self.gamma, self.lambda_, self.alpha, self.eta)


def responsibilities(
    gamma: np.ndarray,
    lambda_: np.ndarray,
    pi: np.ndarray,
    inference: str = "vb",
    power: float = 1.0,
    amount: np.ndarray | float = 0.0,
) -> np.ndarray:
    """phi of one document's words, shapes (K,), (n, K), (K,) -> (n, K).

    `amount`, shape (n,), is what each leaves out of gamma and lambda.
    """
    log_e = {"vb": psi, "cvb0": np.log}[inference]
    w = softmax(power * (log_e(gamma) + log_e(lambda_) - log_e(pi)), axis=1)
    m, own = np.reshape(amount, (-1, 1)), 1 / gamma + 1 / lambda_
    s = 1 / (1 + m * (w**2 * own).sum(axis=1, keepdims=True))
    phi = w / (1 + m / s * w * own)
    return phi / phi.sum(axis=1, keepdims=True)


def go_further(old: np.ndarray, new: np.ndarray, step: float) -> np.ndarray:
    """old + step (new - old), cut at 0, with the sum that each row of new has, shape (n, K)."""
    if step == 1.0:
        return new
    further = np.maximum(old + step * (new - old), 0)
    total = further.sum(axis=1, keepdims=True)
    return further * new.sum(axis=1, keepdims=True) / np.where(total > 0, total, 1)


def left_out(counts: np.ndarray, choice: str) -> np.ndarray:
    """m of pairs with these counts."""
    share = {"none": 0, "pair": 1, "excess": 1.5}
    return np.minimum(counts, 1) if choice == "token" else share[choice] * counts


def keep_largest(phi: np.ndarray, n_kept: int, residual: str) -> np.ndarray:
    """The C largest of each row, the rest spread over the others or dropped, shape (n, K)."""
    kept = np.zeros_like(phi)
    for row, out in zip(phi, kept, strict=True):
        largest = sorted(range(len(row)), key=lambda k: -row[k])[:n_kept]
        out[largest] = row[largest]
        if residual == "drop":
            out /= out.sum()
        elif n_kept < len(row):
            others = np.setdiff1d(np.arange(len(row)), largest)
            out[others] = (1 - out.sum()) / len(others)
    return kept


def _x_log_x(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x * np.log(np.where(x > 0, x, 1.0)), 0.0)


def log_beta(x: np.ndarray) -> np.ndarray:
    """Log of the multivariate beta function over the last axis."""
    return gammaln(x).sum(axis=-1) - gammaln(x.sum(axis=-1))


def bound_l(
    counts: np.ndarray, gamma: np.ndarray, lambda_: np.ndarray, alpha: np.ndarray, eta: np.ndarray
) -> float:
    """The evidence lower bound of (gamma, lambda), with phi put at its best.

    sum n log sum_k exp(Elog theta + Elog beta) - KL(q(theta) | alpha) - KL(q(beta) | eta)
    """
    log_theta = psi(gamma) - psi(gamma.sum(axis=1, keepdims=True))
    log_topics = psi(lambda_) - psi(lambda_.sum(axis=0))
    d, v = np.nonzero(counts)
    likelihood = counts[d, v] @ logsumexp(log_theta[d] + log_topics[v], axis=1)
    return float(
        likelihood
        - dirichlet_kl(gamma, alpha, log_theta).sum()
        - dirichlet_kl(lambda_.T, eta, log_topics.T).sum()
    )


def dirichlet_kl(q: np.ndarray, p: np.ndarray, expected_log: np.ndarray) -> np.ndarray:
    """KL(Dirichlet(q) | Dirichlet(p)) of each row, E log x under q given."""
    return log_beta(np.broadcast_to(p, q.shape)) - log_beta(q) + ((q - p) * expected_log).sum(-1)


def log_evidence_one_topic(counts: np.ndarray, eta: np.ndarray) -> float:
    """log p(words) for K = 1, exact: every token comes from the one topic."""
    return float(log_beta(eta + counts.sum(axis=0)) - log_beta(eta))


def log_evidence(counts: np.ndarray, alpha: np.ndarray, eta: np.ndarray) -> float:
    """log p(words), exact, by summing over the topics of all tokens: K ** tokens terms."""
    n_topics = len(alpha)
    d, v = np.nonzero(counts)
    repeats = counts[d, v].astype(int)
    d, v = np.repeat(d, repeats), np.repeat(v, repeats)
    terms = []
    for z in itertools.product(range(n_topics), repeat=len(d)):
        by_document = np.zeros((len(counts), n_topics))
        by_topic = np.zeros((n_topics, counts.shape[1]))
        np.add.at(by_document, (d, list(z)), 1)
        np.add.at(by_topic, (list(z), v), 1)
        terms.append(
            np.sum(log_beta(alpha + by_document) - log_beta(alpha))
            + np.sum(log_beta(eta + by_topic) - log_beta(eta))
        )
    return float(logsumexp(terms))


def simulate(
    n_documents: int, n_words: int, n_topics: int, length: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Counts (D, V) of LDA with well separated topics, and the topics (K, V)."""
    random = np.random.default_rng(seed)
    topics = np.full((n_topics, n_words), 0.02 / n_words)
    own = np.array_split(np.arange(n_words), n_topics)
    for k, words in enumerate(own):
        topics[k, words] += 0.98 * random.dirichlet(np.full(len(words), 2.0))
    theta = random.dirichlet(np.full(n_topics, 0.1), n_documents)
    counts = np.stack([random.multinomial(length, p) for p in theta @ topics])
    return counts.astype(np.float32), topics


# ------------------------------------------------------------------ mixtures


def diagonal_posterior(x, z, m0, beta0, a0, b0):
    """Normal-Gammas of every component and feature: beta (K,), m (K, D), a (K,), b (K, D)."""
    n = z.sum(axis=0)
    mean = z.T @ x / np.maximum(n, 1e-300)[:, None]
    scatter = np.stack([z[:, k] @ (x - mean[k]) ** 2 for k in range(len(n))])
    beta, a = beta0 + n, a0 + n / 2
    m = (beta0 * m0 + n[:, None] * mean) / beta[:, None]
    shrink = (beta0 * n / beta)[:, None]
    return beta, m, a, b0 + 0.5 * (scatter + shrink * (mean - m0) ** 2)


def diagonal_scores(x, posterior, concentrations):
    """E[log pi_k] + E[log p(x_i | mu_k, lambda_k)], shape (N, K)."""
    beta, m, a, b = posterior
    u = np.tile(psi(concentrations) - psi(concentrations.sum()), (len(x), 1))
    for k in range(len(beta)):
        log_precision = psi(a[k]) - np.log(b[k])
        quadratic = a[k] / b[k] * (x - m[k]) ** 2 + 1 / beta[k]
        u[:, k] += 0.5 * (log_precision - np.log(2 * np.pi) - quadratic).sum(axis=1)
    return u


def diagonal_batch(x, z, m0, beta0, a0, b0, concentration, n_passes):
    """Textbook batch variational inference; z after so many passes, and the bound F there."""
    for _ in range(n_passes):
        posterior = diagonal_posterior(x, z, m0, beta0, a0, b0)
        u = diagonal_scores(x, posterior, concentration + z.sum(axis=0))
        z = np.exp(u - u.max(axis=1, keepdims=True))
        z /= z.sum(axis=1, keepdims=True)
    beta, m, a, b = diagonal_posterior(x, z, m0, beta0, a0, b0)
    concentrations = concentration + z.sum(axis=0)
    u = diagonal_scores(x, (beta, m, a, b), concentrations)
    bound = (z * (u - np.log(np.maximum(z, 1e-300)))).sum()
    # - KL(q(pi) || p(pi)) - sum KL(q(mu, lambda) || p(mu, lambda)), term by term.
    bound -= _kl_dirichlet(concentrations, np.full(len(beta), concentration))
    for k in range(len(beta)):
        precision, log_precision = a[k] / b[k], psi(a[k]) - np.log(b[k])
        kl = 0.5 * (
            np.log(beta[k] / beta0) + beta0 / beta[k] - 1 + beta0 * precision * (m[k] - m0) ** 2
        )
        kl += (a[k] - a0) * log_precision - precision * (b[k] - b0)
        kl += gammaln(a0) - gammaln(a[k]) + a[k] * np.log(b[k]) - a0 * np.log(b0)
        bound -= kl.sum()
    return z, bound


def _kl_dirichlet(q, p):
    kl = gammaln(q.sum()) - gammaln(q).sum() - gammaln(p.sum()) + gammaln(p).sum()
    return kl + ((q - p) * (psi(q) - psi(q.sum()))).sum()
