"""Make a corpus with known topics: ``python -m esvi_shm.simulate --like nytimes --scale 0.1 OUT``.

Parses, calls, prints. Only the standard library is imported at the top, so that --help and
--version answer at once.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Python would print where a Ctrl-C struck. Before `command.run`, which takes care of it, there
    # is nothing to clean up: it just ends the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import math
import os
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from esvi_shm import command
from esvi_shm.errors import MemoryShortError, ParameterError

if TYPE_CHECKING:
    from esvi_shm.corpus.writers import Rows
    from esvi_shm.families.lda.simulator import Simulator
    from esvi_shm.progress import Progress


class Sizes(NamedTuple):
    """Of a corpus; `pairs` None: not published."""

    documents: int
    words: int
    tokens: int
    pairs: int | None


#: Corpora whose sizes can be asked for. Documents, words and tokens of the first four are those of
#: Zhang et al. (2019), table 1; their pairs are those of the UCI files, for each token. The others
#: are counted.
LIKE = {
    "enron": Sizes(37_861, 28_102, 6_200_000, 3_590_000),
    "nytimes": Sizes(298_000, 102_660, 98_800_000, 69_700_000),
    "pubmed": Sizes(8_200_000, 141_043, 737_900_000, 483_450_157),
    "umbc": Sizes(40_600_000, 3_430_000, 3_000_000_000, None),
    "ap": Sizes(2_246, 10_473, 435_838, 302_031),
    "kos": Sizes(3_430, 6_906, 467_714, 353_160),
    "nips": Sizes(1_500, 12_419, 1_932_365, 746_316),
    "20news": Sizes(18_774, 61_188, 4_562_219, 2_435_219),
    "reuters21578": Sizes(19_043, 9_528, 1_368_428, 914_907),
}
#: Tokens drawn at a time, by each thread.
RANGE_TOKENS = 1_000_000
#: Bytes of a pair on the disk: of .npz, its count for a while a second time; of UCI text, a line
#: of middling numbers.
NPZ_BYTES, UCI_BYTES = 12, 20

#: Option: the parameter it sets.
_PARAMETERS = {
    "documents": "n_documents",
    "words": "n_words",
    "tokens": "n_tokens",
    "pairs": "n_pairs",
    "topics": "n_topics",
    "workers": "n_workers",
    "OUT": "out",
}


def _table() -> str:
    lines = [f"  {'--like':<14}{'documents':>12}{'words':>12}{'tokens':>16}{'pairs':>14}"]
    for name, sizes in LIKE.items():
        pairs = "not published" if sizes.pairs is None else f"{sizes.pairs:,}"
        lines.append(
            f"  {name:<14}{sizes.documents:>12,}{sizes.words:>12,}{sizes.tokens:>16,}{pairs:>14}"
        )
    return "\n".join(lines)


EXPLANATION = f"""\
{_table()}

The corpus is drawn from latent Dirichlet allocation. In each topic the word of rank r has the
probability r^-s over its sum (Zipf's law), in an order of its own; topics of documents have a
symmetric Dirichlet prior; lengths are log-normal. Documents, words and tokens are those asked
for; s is chosen so that the pairs are within a few percent (s = 1 where no number of pairs is
asked for or published). --scale S takes S times the documents, tokens and pairs, and S^0.5 times
the words, as vocabularies grow with texts.

  OUT.npz            a scipy CSR matrix, as scipy.sparse.load_npz and the commands read it
  docword.OUT.txt    a UCI bag of words, by that name
  X.topics.npy       beside either, X being its name without .npz or .txt: the true topics,
                     float32 array, shape (words, topics), each column a distribution

The same options and seed give the same corpus, whatever --workers is.

examples:
  python -m esvi_shm.simulate --like nytimes --scale 0.1 nytimes-tenth.npz
  python -m esvi_shm.simulate --like pubmed --topics 256 pubmed.npz
  python -m esvi_shm.simulate --documents 500 --words 300 --tokens 50000 --topics 8 small.npz

The summary goes to standard output, progress to standard error. Exit codes: 0 done, 1 failed,
2 bad input, 130 or 143 interrupted.
"""


def _parser() -> argparse.ArgumentParser:
    parser = command.make_parser(
        "simulate",
        "Make a corpus with known topics, in the sizes of a published one or your own.",
        EXPLANATION,
    )
    parser.add_argument("out", metavar="OUT", help="where it goes: X.npz or docword.X.txt")
    sizes = parser.add_argument_group("sizes")
    sizes.add_argument("--like", metavar="NAME", help="sizes of a corpus of the table below")
    sizes.add_argument(
        "--scale", type=float, default=1.0, metavar="S", help="of --like (default: 1)"
    )
    for name in ("documents", "words", "tokens", "pairs"):
        sizes.add_argument(
            f"--{name}", type=int, metavar="N", help=f"number of {name} (default: of --like)"
        )
    model = parser.add_argument_group("model")
    model.add_argument(
        "--topics", type=int, default=128, metavar="K", help="number of topics (default: 128)"
    )
    model.add_argument(
        "--alpha", type=float, metavar="A",
        help="Dirichlet prior of a document, per topic (default: 5 / K)",
    )  # fmt: skip
    model.add_argument(
        "--seed", type=int, default=0, metavar="S", help="of all random choices (default: 0)"
    )
    parser.add_argument("--workers", type=int, metavar="P", help="threads (default: one a core)")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser


def _sizes(given: argparse.Namespace) -> Sizes:
    """The sizes that the options ask for."""
    if not (0 < given.scale < math.inf):
        raise ParameterError("scale", "must be greater than 0", given.scale)
    like = None
    if given.like is not None:
        from esvi_shm.config import choose

        documents, words, tokens, pairs = LIKE[choose("like", given.like, LIKE)]
        scale = given.scale
        documents = max(round(documents * scale), 1)
        like = Sizes(
            documents,
            max(round(words * math.sqrt(scale)), 1),
            max(round(tokens * scale), documents),
            None if pairs is None else max(round(pairs * scale), documents),
        )
    elif given.scale != 1:
        raise ParameterError("scale", "must come with --like", given.scale)
    found = {}
    for name in Sizes._fields:
        value = getattr(given, name)
        if value is None and like is not None:
            value = getattr(like, name)
        if value is None and name != "pairs":
            raise ParameterError(name, "must be given where --like is not", value)
        found[name] = value
    return Sizes(**found)


def _topics_path(path: str) -> str:
    """Where the true topics go."""
    return path.removesuffix(".npz").removesuffix(".txt") + ".topics.npy"


def _is_uci(path: str) -> bool:
    name = os.path.basename(path)
    return name.startswith("docword.") and name.endswith(".txt")


def _check(given: argparse.Namespace, sizes: Sizes) -> None:
    """What can be refused before anything is allocated."""
    from esvi_shm.config import check_workers
    from esvi_shm.families.lda import simulator
    from esvi_shm.shared.preflight import check_memory, free_space

    if not (given.out.endswith(".npz") or _is_uci(given.out)):
        raise ParameterError("out", "must end with .npz, or be called docword.X.txt", given.out)
    command.check_output("out", given.out, (), begins=b"" if _is_uci(given.out) else b"PK")
    command.check_output("out", _topics_path(given.out), (given.out,))
    if given.workers is not None:
        check_workers(given.workers)
    simulator.check(*sizes, given.topics, given.alpha, given.seed)
    topics = 4 * sizes.words * given.topics
    check_memory(2 * topics + 40 * sizes.documents + 40 * sizes.words, "to draw the corpus")
    pairs = sizes.tokens if sizes.pairs is None else sizes.pairs
    needed = pairs * (UCI_BYTES if _is_uci(given.out) else NPZ_BYTES) + topics
    free = free_space(os.path.dirname(os.path.abspath(given.out)))
    if needed > free:
        raise MemoryShortError(
            f"{given.out}: takes about {needed:,} bytes for a while; {free:,} are free there"
        )


def _told(ranges: "Iterable[Rows]", total: int, progress: "Progress") -> "Iterator[Rows]":
    """The same ranges, with word of how far they have come."""
    done = 0
    for rows in ranges:
        yield rows
        done += len(rows[0]) - 1
        progress.drawing(done, total)


def _write(
    corpus: "Simulator", given: argparse.Namespace, sizes: Sizes, progress: "Progress"
) -> int:
    """Draw the corpus and write it; returns its pairs."""
    import numpy as np

    from esvi_shm.corpus import writers
    from esvi_shm.corpus.split import split_documents
    from esvi_shm.runtime.cores import available_cores
    from esvi_shm.runtime.threads import in_order

    n_ranges = min(sizes.tokens // RANGE_TOKENS + 1, sizes.documents)
    bounds = split_documents(corpus.offsets, n_ranges).tolist()
    drawn = in_order(corpus.draw, pairwise(bounds), given.workers or available_cores())
    ranges = _told(drawn, sizes.documents, progress)
    with (
        command.whole_file(_topics_path(given.out)) as topics,
        command.whole_file(given.out) as file,
    ):
        np.lib.format.write_array(topics, corpus.topics(), allow_pickle=False)
        if _is_uci(given.out):
            return writers.write_uci(file, ranges, sizes.documents, sizes.words)
        folder = os.path.dirname(os.path.abspath(given.out))
        return writers.write_npz(file, ranges, sizes.documents, sizes.words, folder)


def _run(given: argparse.Namespace) -> None:
    sizes = _sizes(given)
    _check(given, sizes)
    from esvi_shm.families.lda.simulator import simulator
    from esvi_shm.progress import Progress

    with Progress(given.quiet, None) as progress:
        began = time.perf_counter()
        corpus = simulator(*sizes, given.topics, given.alpha, given.seed)
        chosen = time.perf_counter()
        n_pairs = _write(corpus, given, sizes, progress)
        seconds = time.perf_counter() - chosen
    asked = "" if sizes.pairs is None else f" ({n_pairs / sizes.pairs - 1:+.1%} of what was asked)"
    print(
        f"{sizes.documents:,} documents, {sizes.words:,} words, {sizes.tokens:,} tokens, "
        f"{n_pairs:,} pairs{asked}, {given.topics} topics, exponent {corpus.exponent:.3f}"
    )
    print(
        f"{chosen - began:.1f} s to choose the topics, {seconds:.1f} s to draw and write, "
        f"{n_pairs / seconds / 1e6:.2f} million pairs/s"
    )
    print(f"saved in {given.out}, its topics in {_topics_path(given.out)}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return command.run("esvi_shm.simulate", _run, _parser().parse_args(arguments), _PARAMETERS)


if __name__ == "__main__":
    command.end(main())
