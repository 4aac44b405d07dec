"""Tables (markdown) and figures of what `bench.quality` has found; runs nothing.

Perplexities are means over seeds. Their errors, and those of ratios, are standard deviations over
a bootstrap of the test documents, the same documents drawn for all systems: what another test set
of that kind would change, not what another seed would.
"""

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import common
from bench.quality_records import GRID, OURS, PEERS, Record, Records, choose

DRAWS = 1000
#: Figures asked for: L a token of whole corpora, 64 topics, alpha = eta = 0.1.
BOUND_TARGETS = {"ap": -8.06, "kos": -7.61}
RATIO_TARGET, SPEED_TARGET = 1.0, 20.0
#: Perplexity by WarpLDA (C++, the better of alpha = eta = 0.05 and 0.1) after so many iterations,
#: 64 topics, found elsewhere with the same scorer: of other documents held out, on another machine.
WARP_LDA = {"ap": {300: 2440.0, 1000: 2359.0}, "nips": {300: 1623.0}}
WARP_LDA_TOPICS = 64
WARP_LDA_NAME = "WarpLDA, found elsewhere: 24 to 47 million tokens/s (NIPS)"


class Point(NamedTuple):
    """Means over seeds after so many steps."""

    steps: int
    cpu: float  # seconds of the processor
    timed: bool  # the median of `--timed`; else the mean of what was scored, whatever ran beside
    perplexity: float
    draws: np.ndarray  # (DRAWS,): that on bootstrapped documents


class Found(NamedTuple):
    """A system on a corpus, with the priors that its validation chose."""

    priors: dict[str, float]
    choices: int  # from so many pairs
    seeds: int
    curve: list[Point]  # ends with the whole fit

    @property
    def last(self) -> Point:
        return self.curve[-1]


def bootstrap(tokens: np.ndarray, log_likelihood: np.ndarray, seed: int = 0) -> np.ndarray:
    """Perplexity, a mean over seeds, on documents drawn with replacement.

    Parameters
    ----------
    tokens : array, shape (D,)
    log_likelihood : array, shape (seeds, D)
        Of each document, in nats.

    Returns
    -------
    array, shape (DRAWS,)
        The same seed draws the same documents.

    Examples
    --------
    >>> float(bootstrap(np.array([2, 4]), np.log([[0.25, 0.0625]]))[0].round(6))
    2.0
    """
    n = len(tokens)
    times = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=DRAWS)
    drawn = np.maximum(times @ tokens, 1)  # a draw of empty documents alone
    return np.exp(-(times @ log_likelihood.T) / drawn[:, None]).mean(axis=1)


def _pairs(records: Records, key: dict[str, Any]) -> list[tuple[float, float]]:
    """The (alpha, eta) that a system was last given to choose from."""
    given = records.find(part="grid", **key)
    return [(alpha, eta) for alpha, eta in given[-1]["pairs"]] if given else list(GRID)


def of_grid(records: Records, key: dict[str, Any], whole: int) -> list[Record]:
    """The whole fits of seed 0 with each (alpha, eta) that a system may choose from."""
    pairs = _pairs(records, key)
    fits = records.find(part="state", **key, seed=0, steps=whole)
    return [r for r in fits if (r["alpha"], r["eta"]) in pairs]


def find(records: Records, **key: Any) -> Found | None:
    """What there is of a system; None until its grid is complete."""
    states = records.find(part="state", **key)
    whole = max((r["steps"] for r in states), default=0)
    grid = of_grid(records, key, whole)
    pairs = _pairs(records, key)
    if len(grid) < len(pairs):
        return None
    priors = choose(grid)
    states = records.find(part="state", **key, **priors)
    seeds = {r["seed"] for r in states if r["steps"] == whole}
    steps = sorted({r["steps"] for r in states})
    by_steps = {n: [r for r in states if r["steps"] == n and r["seed"] in seeds] for n in steps}
    (test,) = records.find(part="test", corpus=key["corpus"], split=key["split"])[:1]
    tokens = np.array(test["tokens"])
    curve = []
    for n, same in by_steps.items():
        draws = bootstrap(tokens, np.array([r["log_likelihood"] for r in same]))
        timed = [r["cpu"] for r in records.find(part="time", **key, **priors, steps=n)]
        cpu = common.median(timed) if timed else _mean(r["cpu"] for r in same)
        curve.append(Point(n, cpu, bool(timed), _mean(r["test"] for r in same), draws))
    return Found(priors, len(pairs), len(seeds), curve)


def _mean(values: Iterable[float]) -> float:
    return common.mean_and_error(list(values))[0]


Table = dict[str, dict[str, Found]]  # corpus: system: what was found


def gather(records: Records, split: int, n_topics: int) -> Table:
    """All systems of all corpora; the corpora in the order in which they came."""
    states = records.find(part="state", split=split, topics=n_topics)
    table: Table = {}
    corpora = dict.fromkeys(r["corpus"] for r in states)
    for corpus, system in itertools.product(corpora, (*OURS, *PEERS)):
        key = {"corpus": corpus, "split": split, "topics": n_topics, "system": system}
        found = find(records, **key)
        if found:
            table.setdefault(corpus, {})[system] = found
    return table


def _systems(table: Table) -> list[str]:
    """Those that any corpus has, ours first."""
    return [name for name in (*OURS, *PEERS) if any(name in of for of in table.values())]


def _rows(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    """A markdown table."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)] + [""]


def tables(table: Table) -> list[str]:
    """Perplexities and seconds, ours against the best peer, ours after fewer passes; priors."""
    systems = _systems(table)
    ours = [name for name in systems if name in OURS]

    def row(label: str, show: Callable[[dict[str, Found]], str]) -> list[str]:
        return [label, *(show(of) for of in table.values())]

    def of_system(name: str, show: Callable[[Found], str]) -> Callable[[dict[str, Found]], str]:
        return lambda of: show(of[name]) if name in of else ""

    everything = [found for of in table.values() for found in of.values()]
    most = max(found.seeds for found in everything)
    is_mixed = len({point.timed for found in everything for point in found.curve}) > 1

    def figures(point: Point) -> str:
        return _figures(point, " †" if is_mixed and not point.timed else "")

    def last(found: Found) -> str:
        fewer = f", seeds: {found.seeds}" if found.seeds < most else ""
        return f"{figures(found.last)}{fewer}"

    rows = [row(name, of_system(name, last)) for name in systems]
    if len(ours) < len(systems):
        for name in ours:
            rows += [
                row(f"best peer's over that of {name}", partial(_against_best, name=name)),
                row(f"tomotopy's seconds over those of {name}", partial(_speed, name=name)),
                row(f"as many passes of {name} as are {SPEED_TARGET:g} times sooner than tomotopy: "
                    "ratio", partial(_soon, name=name)),
                row(f"{name} passes the best peer after", partial(_passing, name=name)),
            ]  # fmt: skip
    for name in ours:
        curves = [of[name].curve[:-1] for of in table.values() if name in of]
        for steps in sorted({point.steps for curve in curves for point in curve}):
            after = partial(_after, steps=steps, show=figures)
            rows.append(row(f"{name}, {steps} passes", of_system(name, after)))
    lines = [
        f"Perplexity of the test documents, means over seeds ({most}), with errors; in brackets "
        "the processor's seconds of fitting"
        + (" (†: not `--timed`, and not compared with those that are)" if is_mixed else "") + ":",
        "",
    ]  # fmt: skip
    lines += _rows(["", *table], rows)
    lines += ["Chosen alpha, eta, of so many pairs; steps:", ""]

    def chosen(found: Found) -> str:
        alpha, eta = found.priors["alpha"], found.priors["eta"]
        return f"{alpha:g}, {eta:g} (of {found.choices}); {found.last.steps}"

    return lines + _rows(["", *table], [row(name, of_system(name, chosen)) for name in systems])


def _figures(point: Point, mark: str) -> str:
    """Perplexity, its error and the seconds, in as many digits as say something."""
    digits = 0 if point.perplexity >= 1000 else 1
    seconds = f"{point.cpu:.{2 if point.cpu < 1 else 1 if point.cpu < 10 else 0}f}{mark}"
    return f"{point.perplexity:.{digits}f} ± {point.draws.std():.{digits}f} ({seconds})"


def _after(found: Found, steps: int, show: Callable[[Point], str]) -> str:
    """The figures after so many steps, if that was asked for."""
    return next((show(p) for p in found.curve[:-1] if p.steps == steps), "")


def _best_peer(of: dict[str, Found]) -> str | None:
    peers = [name for name in of if name not in OURS]
    return min(peers, key=lambda name: of[name].last.perplexity) if peers else None


def _seconds_of_tomotopy(of: dict[str, Found], name: str) -> float | None:
    """Those of the faster one, of those that were timed as system `name` was."""
    if name not in of:
        return None
    theirs = [found.last for peer, found in of.items() if peer.startswith("tomotopy")]
    return min((p.cpu for p in theirs if p.timed == of[name].last.timed), default=None)


def _against_best(of: dict[str, Found], name: str) -> str:
    best = _best_peer(of)
    if name not in of or best is None:
        return ""
    return f"{best}: {_ratio(of[best].last, of[name].last)}"


def _speed(of: dict[str, Found], name: str) -> str:
    theirs = _seconds_of_tomotopy(of, name)
    if theirs is None:
        return ""
    times = theirs / of[name].last.cpu
    return f"{times:.1f} ({_met(times >= SPEED_TARGET)})"


def _soon(of: dict[str, Found], name: str) -> str:
    """Which passes these are does not depend on the test documents."""
    best, theirs = _best_peer(of), _seconds_of_tomotopy(of, name)
    if best is None or theirs is None:
        return ""
    alike = [p for p in of[name].curve if p.timed == of[name].last.timed]
    fast = [p for p in alike if theirs >= SPEED_TARGET * p.cpu]
    if not fast:
        return "none"
    times = theirs / fast[-1].cpu
    return f"{fast[-1].steps} passes, {times:.1f} times: {_ratio(of[best].last, fast[-1])}"


def _passing(of: dict[str, Found], name: str) -> str:
    best = _best_peer(of)
    if name not in of or best is None:
        return ""
    goal = of[best].last
    first = next((p for p in of[name].curve if p.perplexity <= goal.perplexity), None)
    if first is None:
        return "never"
    if first.timed != goal.timed:
        return f"{first.steps} passes"
    return f"{first.steps} passes, {goal.cpu / first.cpu:.1f} times sooner"


def _ratio(goal: Point, ours: Point) -> str:
    """A peer's perplexity over ours, with its error, and whether that is what was asked for."""
    ratio, error = goal.perplexity / ours.perplexity, (goal.draws / ours.draws).std()
    return f"{ratio:.3f} ± {error:.3f} ({_met(ratio >= RATIO_TARGET)})"


def _met(met: bool) -> str:
    return "met" if met else "NOT met"


def bound_table(records: list[Record], n_topics: int) -> list[str]:
    """L a token of each system, the median of its seeds, and what it must reach."""
    there = {r["system"] for r in records}
    names = [name for name in (*OURS, *PEERS) if name in there]
    priors = {(r["alpha"], r["eta"]) for r in records}
    rows = []
    for corpus in dict.fromkeys(r["corpus"] for r in records):
        row, medians = [corpus], {}
        for name in names:
            of = [r for r in records if (r["corpus"], r["system"]) == (corpus, name)]
            of = [r for r in of if r["steps"] == max(r["steps"] for r in of)]
            if of:
                medians[name] = common.median([r["elbo"] for r in of])
                row.append(f"{medians[name]:.4f} ({of[0]['steps']} steps, seeds: {len(of)})")
            else:
                row.append("")
        goals = [medians["scikit-learn"]] if "scikit-learn" in medians else []
        goals += [BOUND_TARGETS[corpus]] if corpus in BOUND_TARGETS and n_topics == 64 else []
        ours = [medians[name] for name in OURS if name in medians]
        met = _met(max(ours) >= max(goals)) if goals and ours else ""
        rows.append([*row, f"{max(goals):.4f}: {met}" if goals else ""])
    lines = [f"ELBO L a token of the whole corpus, (alpha, eta) = {sorted(priors)}, medians:", ""]
    return lines + _rows(
        ["", *names, "the higher of scikit-learn's and the figure asked for"], rows
    )


def draw(figure: Any, table: Table, n_topics: int, by_steps: bool = False) -> None:
    """Perplexity against seconds or steps, a panel for each corpus."""
    from matplotlib.ticker import LogLocator

    columns = min(len(table), 3)
    rows = -(-len(table) // columns)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    systems = _systems(table)
    marks = {name: (f"C{i}", "osD^vP*"[i % 7]) for i, name in enumerate(systems)}
    lines: dict[str, Any] = {}
    for axes, (corpus, of) in zip(panels, table.items(), strict=False):
        for name, found in of.items():
            color, mark = marks[name]
            (lines[name],) = axes.plot(
                [p.steps if by_steps else p.cpu for p in found.curve],
                [p.perplexity for p in found.curve],
                marker=mark, color=color, ms=3.5, lw=1.2, ls="-" if name in OURS else "--",
            )  # fmt: skip
        if by_steps and n_topics == WARP_LDA_TOPICS and corpus in WARP_LDA:
            of_warp_lda = WARP_LDA[corpus]
            steps, perplexity = list(of_warp_lda), list(of_warp_lda.values())
            (lines[WARP_LDA_NAME],) = axes.plot(steps, perplexity, "k*", ms=6)
        best = min(found.last.perplexity for found in of.values())
        # The first steps lie far above all that matters.
        axes.set_ylim(best * 0.98, best * 1.3)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.set_title(corpus, fontsize=9)
        axes.grid(alpha=0.3, which="both", lw=0.5)
        seconds, steps_made = "processor seconds of fitting", "passes, or a sampler's iterations"
        axes.set_xlabel(steps_made if by_steps else seconds, fontsize=8)
        axes.set_ylabel("perplexity of test documents", fontsize=8)
        axes.tick_params(labelsize=7)
    for axes in panels[len(table) :]:
        axes.axis("off")
    shown = [name for name in (*systems, WARP_LDA_NAME) if name in lines]
    figure.legend([lines[name] for name in shown], shown, loc="outside upper center", ncols=4,
                  fontsize=8)  # fmt: skip


def write(records: Records, out: Path) -> None:
    """Print the tables, and save them as quality.md with a figure for each number of topics."""
    machines = records.find(part="machine")
    if not machines:
        common.skip(f"{records.path} has no results")
    facts = machines[-1]
    text = [common.describe(facts), ""]
    runs = dict.fromkeys((r["split"], r["topics"]) for r in records.find(part="state"))
    for split, n_topics in runs:
        table = gather(records, split, n_topics)
        if not table:
            continue
        text += [f"### {n_topics} topics, held-out documents of split {split}", "", *tables(table)]
        rows = -(-len(table) // 3)
        size = (3.4 * min(len(table), 3) + 0.6, 2.7 * rows + 0.7)
        for what, by_steps in (("", False), ("-by-passes", True)):
            path = out / f"quality-{n_topics}-topics-split-{split}{what}.png"
            common.paint(
                path, facts, partial(draw, table=table, n_topics=n_topics, by_steps=by_steps), size
            )
    for n_topics in dict.fromkeys(r["topics"] for r in records.find(part="bound")):
        text += [f"### {n_topics} topics, the bound", ""]
        text += bound_table(records.find(part="bound", topics=n_topics), n_topics)
    print("\n".join(text))
    (out / "quality.md").write_text("\n".join(text))
