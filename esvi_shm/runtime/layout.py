"""What a fit will hold in memory, known before anything is allocated, and how it is filled.

    segment       filled by           holds
    corpus        home                what all workers read of the data
    shard_<p>     home                the units of worker p (both: the family's `Cut` declares them)
    parameters    home, then owners   what travels, and what all read (the family declares it)
    state_<p>     worker p            what belongs to its units (the family declares it)
    control       see `blocks`        rings and words of the protocol

The units are filled in by home, one shard after the other: they are read in order and are small
beside the state, which each worker allocates and first touches itself, on its own memory node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from esvi_shm import families
from esvi_shm.config import FitConfig
from esvi_shm.families.contract import Cut, Data, Family, Sizes
from esvi_shm.runtime import blocks
from esvi_shm.shared.table import ArraySpec, Table

#: Of the rows that travel, times the number of nodes: what a node may hold at once. With less,
#: blocks wait for room at nodes that are near to full: with 2.25, 16 nodes of `bench.cluster` are
#: slower by a third. Of few blocks it holds its own, and may hold so many more.
MOST_HELD, FEWEST_SPARE = 2.5, 2
#: Of a line of a plan before its size: names of arrays have up to 25 letters.
PLAN_WIDTH = 68


def mib(n_bytes: int) -> str:
    """A size in a column of a plan."""
    return f"{n_bytes / 2**20:>10.2f} MiB"


@dataclass(frozen=True)
class Layout:
    """Sizes, tables and cuts of one fit. Made by `lay_out`; allocates nothing.

    Attributes
    ----------
    config : FitConfig
        With numbers of workers and blocks filled in.
    cut : Cut
    model : Family
    tables : dict of str to Table
        By segment.
    released_bytes : int
        Of the data: what is given up once the segments hold them.
    """

    config: FitConfig
    cut: Cut
    model: Family
    tables: Mapping[str, Table]
    released_bytes: int = 0

    @property
    def sizes(self) -> Sizes:
        """Numbers of workers and blocks, and the family's own."""
        return self.cut.sizes

    @property
    def total_bytes(self) -> int:
        """Bytes of all segments, of what travels those that may be here at once."""
        whole = sum(table.total_bytes for table in self.tables.values())
        partly = () if self.model.copied else self.model.travels
        travelling = sum(self.tables["parameters"][name].n_bytes for name in partly)
        return whole - travelling + int(self.most_held * travelling)

    @property
    def most_held(self) -> float:
        """The share of what travels that a node may hold, if blocks are alike."""
        n_nodes, n_blocks = self.sizes.n_nodes, self.sizes.n_blocks
        few = (-(-n_blocks // n_nodes) + FEWEST_SPARE) / n_blocks
        return min(max(MOST_HELD / n_nodes, few), 1.0)

    @property
    def filled_bytes(self) -> int:
        """Bytes of the segments that home fills with the data."""
        filled = ("corpus", *(f"shard_{p}" for p in range(self.sizes.n_workers)))
        return sum(self.tables[label].total_bytes for label in filled)

    def with_config(self, config: FitConfig) -> "Layout":
        """The same cut of the data, with arrays that the family needs for another configuration.

        Parameters
        ----------
        config : FitConfig
            With the same numbers of workers and blocks, for which the family cuts the data alike.
        """
        model = families.find(config.family)(config, self.sizes)
        tables = {**self.tables, "parameters": Table(model.shared_specs())}
        for p in range(self.sizes.n_workers):
            tables[f"state_{p}"] = Table(model.shard_specs(p))
        return replace(self, config=config, model=model, tables=tables)

    def describe(self) -> str:
        """The shared arrays, each with its shape and size, as text."""
        lines = []
        grouped: dict[tuple[str, str], list[ArraySpec]] = {}
        for label, table in self.tables.items():
            for spec in table:
                grouped.setdefault((label.split("_")[0], spec.name), []).append(spec)
        for (segment, name), specs in grouped.items():
            n_bytes = sum(spec.n_bytes for spec in specs)
            shape = " x ".join(str(n) for n in specs[0].shape)
            if len(specs) > 1:
                rows = sum(spec.shape[0] for spec in specs)
                shape = " x ".join([str(rows), *(str(n) for n in specs[0].shape[1:])])
            kind = f"{specs[0].dtype!s:<8}"
            lines.append(f"  {segment:<11}{name:<26}{shape:>22} {kind}{mib(n_bytes)}")
        lines.append(f"  {'shared arrays, total':<{PLAN_WIDTH}}{mib(self.total_bytes)}")
        return "\n".join(lines)


def lay_out(data: Data, config: FitConfig, release: bool = False) -> Layout:
    """Cut the data and size every array.

    Parameters
    ----------
    data : what the family is fitted to
    config : FitConfig
        `n_workers` and `n_blocks` must be set and no more than there is to deal out.
    release : bool
        The data are to be released.

    Raises
    ------
    InputError
        For a name or a prior that the family does not take, or data that do not go with them.
    MemoryShortError
        If there is no memory to cut the data.
    """
    family = families.find(config.family)
    cut = family.cut(data, config)
    model = family(config, cut.sizes)
    model.check_data(data)
    tables = {
        "corpus": Table(cut.data_specs()),
        "parameters": Table(model.shared_specs()),
        "control": Table(blocks.control_specs(cut.sizes.n_workers, cut.sizes.n_blocks)),
    }
    for p in range(cut.sizes.n_workers):
        tables[f"shard_{p}"] = Table(cut.shard_data_specs(p))
        tables[f"state_{p}"] = Table(model.shard_specs(p))
    return Layout(config, cut, model, tables, cut.released_bytes if release else 0)


def fill(layout: Layout, data: Data, arrays: Mapping[str, Any]) -> Any:
    """Write the data into the arrays of the segments `corpus` and `shard_<p>`.

    Parameters
    ----------
    layout : Layout
        Of these data.
    data : as for `lay_out`
    arrays : mapping of str to arrays
        By segment; zeros.

    Returns
    -------
    object
        The data as they are there; see `families.contract.Cut.fill`.
    """
    return layout.cut.fill(data, arrays)
