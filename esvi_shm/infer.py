"""Infer the topics of unseen documents: ``python -m esvi_shm.infer MODEL CORPUS --out FILE``.

Parses, calls, prints. Only the standard library is imported at the top, so that --help and
--version answer at once.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Python would print where a Ctrl-C struck. Before `command.run`, which takes care of it, there
    # is nothing to clean up: it just ends the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import time
from typing import TYPE_CHECKING, Any

from esvi_shm import command
from esvi_shm.errors import ParameterError

if TYPE_CHECKING:
    import numpy as np

EXPLANATION = """\
For each document, gamma is the fixed point of
  gamma_dk = alpha_k + sum_v n_dv phi_dvk,   phi_dvk ~ E(gamma_dk) E(lambda_vk) / E(pi_k),
pi being the sums of lambda over the words, and E(x) = exp(digamma(x)) or, for a model whose fit
ended with inference cvb0, x; phi is tempered as in the last pass of that fit. Written is
theta_dk = gamma_dk / sum_k gamma_dk, a row for each document, in order. A document without known
words has the prior mean, alpha / sum(alpha); a warning says how many there are.

Words are matched by name; those outside the model's vocabulary are counted and left out. Where
only one side has names, columns are taken for the model's words in order.

  theta.npy     float32 array, shape (documents, topics)
  theta.csv     a line of names, then "document,share,share,...", documents from 0

Of a mixture, with CORPUS as points, each point's responsibilities of the components are written, in
the same forms.

examples:
  python -m esvi_shm.infer nips-model docword.new.txt.gz --out theta.npy
  python -m esvi_shm.infer model new.txt --out theta.csv --workers 4

The summary goes to standard output, progress to standard error. Exit codes: 0 done, 1 failed,
2 bad input, 130 or 143 interrupted.
"""

#: Option: the parameter it sets.
_PARAMETERS = {"workers": "n_workers"}


def _parser() -> argparse.ArgumentParser:
    parser = command.make_parser(
        "infer",
        "Say how the topics of a model share each document, of new documents too; "
        "the topics stay as they are.",
        EXPLANATION,
    )
    command.add_model_and_corpus(parser)
    parser.add_argument(
        "--out", required=True, metavar="FILE", help="where theta goes: .npy or .csv"
    )
    parser.add_argument("--workers", type=int, metavar="P", help="threads (default: one a core)")
    parser.add_argument(
        "--steps", type=int, default=100, metavar="N", help="steps at most (default: 100)"
    )
    parser.add_argument(
        "--tol", type=float, default=1e-3, metavar="T",
        help="a document is done when the mean change of its gamma is smaller (default: 0.001)",
    )  # fmt: skip
    parser.add_argument("--quiet", action="store_true", help="no progress; warnings all the same")
    return parser


def _write(theta: "np.ndarray", path: str, words: tuple[str, str] = ("document", "topic")) -> None:
    import numpy as np

    with command.whole_file(path) as file:
        if path.endswith(".npy"):
            np.lib.format.write_array(file, theta, allow_pickle=False)
            return
        names = ",".join(f"{words[1]}_{k}" for k in range(theta.shape[1]))
        file.write(f"{words[0]},{names}\n".encode())
        for d, row in enumerate(theta):
            # As few digits as tell the float32 apart.
            file.write(f"{d},{','.join(map(str, row))}\n".encode())


def _check(given: argparse.Namespace) -> None:
    """What can be refused before anything is read."""
    from esvi_shm.config import check_workers

    if not given.out.endswith((".npy", ".csv")):
        raise ParameterError("out", "must end with .npy or .csv", given.out)
    read = (given.corpus, given.vocabulary, given.stop_words)
    command.check_output("out", given.out, read, given.model)
    if given.workers is not None:
        check_workers(given.workers)
    if given.steps < 0:
        raise ParameterError("steps", "must be at least 0", given.steps)
    if not given.tol >= 0:
        raise ParameterError("tol", "must be at least 0", given.tol)


def _run(given: argparse.Namespace) -> None:
    _check(given)
    import numpy as np

    from esvi_shm import store
    from esvi_shm.mixture import FittedMixture
    from esvi_shm.progress import Progress

    model = store.load(given.model)
    if isinstance(model, FittedMixture):
        defaults = {name: _parser().get_default(name) for name in ("workers", "steps", "tol")}
        command.refuse(given, {**command.READING, **defaults}, "for a mixture")
        z = model.predict_proba(given.corpus).astype(np.float32)
        _write(z, given.out, ("point", "component"))
        print(f"{z.shape[0]:,} points, {z.shape[1]} components, saved in {given.out}")
        return
    with Progress(given.quiet, None) as progress:
        corpus = command.read(given, given.corpus, progress)
        aligned = model.aligned(corpus, may_be_empty=True)
        began = time.perf_counter()
        theta = model.transform(aligned.corpus, given.workers, steps=given.steps, tol=given.tol)
        seconds = time.perf_counter() - began
        _write(theta, given.out)
    unknown: Any = aligned.outside_tokens
    print(
        f"{len(theta):,} documents, {corpus.n_tokens - unknown:,} tokens of known words, "
        f"{unknown:,} tokens of {aligned.outside_words:,} unknown ones"
    )
    included = " (with compiling)" if progress.has_compiled else ""
    print(f"{theta.shape[1]} topics, {seconds:.2f} s of inference{included}, saved in {given.out}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return command.run("esvi_shm.infer", _run, _parser().parse_args(arguments), _PARAMETERS)


if __name__ == "__main__":
    command.end(main())
