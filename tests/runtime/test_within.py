"""A limit of memory: what is taken then, by the plan, and what is refused."""

import itertools
import logging
from dataclasses import replace

import numpy as np
import pytest

from esvi_shm import families
from esvi_shm.config import FitConfig, size_in_bytes
from esvi_shm.corpus.corpus import Corpus
from esvi_shm.errors import ParameterError
from esvi_shm.families.lda.schedule import ACTIVE_TOPICS
from esvi_shm.runtime import engine, memory
from esvi_shm.runtime.memory import peak_bytes

MIB = 2**20


def corpus_of(n_documents: int, n_words: int, a_document: int) -> Corpus:
    """Each document has so many words once."""
    random = np.random.default_rng(0)
    indices = np.array(
        [np.sort(random.permutation(n_words)[:a_document]) for _ in range(n_documents)], np.int32
    )
    indptr = np.arange(n_documents + 1) * a_document
    ones = np.ones(indices.size, np.float32)
    return Corpus(indptr, indices.ravel(), ones, n_words, name="drawn")


#: Margins are smaller than full, and topk may be smaller than they. In short documents full is.
LONG, SHORT = corpus_of(2000, 800, 20), corpus_of(4000, 6000, 3)
CONFIG = FitConfig(n_topics=64, n_workers=2)


@pytest.fixture(autouse=True)
def processes_take_the_same_each_time(monkeypatch):
    monkeypatch.setattr(memory, "private_bytes", lambda: 80 * MIB)


def taken(corpus: Corpus, config: FitConfig, limit: int) -> tuple[str | None, int | None, int]:
    """Storage, number kept and number of blocks within a limit."""
    layout = engine.plan(corpus, replace(config, max_memory=limit))
    assert peak_bytes(layout) <= limit
    assert layout.config.max_memory == limit
    found = layout.config
    assert layout.model.config == found
    return found.storage, found.topk, layout.sizes.n_blocks


def peak(corpus: Corpus, config: FitConfig = CONFIG, **changes: object) -> int:
    """The plan of what is asked for by name."""
    return peak_bytes(engine.plan(corpus, replace(config, **changes)))


@pytest.mark.parametrize("corpus", [LONG, SHORT], ids=["long", "short"])
def test_what_fits_as_it_is_asked_for_stays(corpus, caplog):
    limit = peak(corpus)
    asked = engine.plan(corpus, CONFIG)
    assert taken(corpus, CONFIG, limit) == ("margins", None, asked.sizes.n_blocks)
    assert caplog.records == []


def test_each_step_down_is_the_first_that_fits(caplog):
    """The order of preference, against plans of every candidate on its own."""
    config = replace(CONFIG, inference="vb")
    ways = [("margins", None), ("full", None), *(("topk", n) for n in range(16, 0, -1))]
    assert engine.plan(LONG, config).sizes.n_blocks == 4
    peaks = {
        (*way, n): peak(LONG, config, storage=way[0], topk=way[1], n_blocks=n)
        for way in ways
        for n in (4, 2)
    }
    # Within margins and full fewer blocks first; then as many kept as fit, in any number of blocks.
    groups = [[(*way, n) for n in (4, 2) for way in ways[:2]]]
    groups += [[(*way, n) for n in (4, 2)] for way in ways[2:]]
    order = list(itertools.chain(*groups))
    reached = set()
    for limit in sorted(set(peaks.values())):
        expected = next(key for key in order if peaks[key] <= limit)
        assert taken(LONG, config, limit) == expected
        reached.add(expected)
    assert {key[0] for key in reached} == {"margins", "topk"}
    assert {key[2] for key in reached} == {4, 2}
    assert len({key[1] for key in reached}) > 2


def test_full_is_taken_where_documents_are_so_short_that_it_is_smaller(caplog):
    config = replace(CONFIG, n_blocks=4, inference="vb")
    limit = peak(SHORT, config, storage="full")
    assert limit < peak(SHORT, config, storage="margins")
    with caplog.at_level(logging.INFO):
        assert taken(SHORT, config, limit) == ("full", None, 4)
    (record,) = caplog.records[:1]
    # As good: no warning.
    assert record.levelno == logging.INFO
    assert "taking storage full in 4 blocks (about " in record.getMessage()
    assert ", for storage margins in 4 blocks would take about " in record.getMessage()


@pytest.mark.parametrize(
    ("changes", "as_good"),
    [
        ({"inference": "vb"}, True),
        ({"inference": "vb", "settle": 2}, True),
        ({"inference": "vb", "relax": 1.5}, True),
        ({"settle": 2, "relax": 1.0}, True),
        ({"inference": "cvb0", "settle": 1}, False),
        ({"inference": "cvb0", "relax": 1.0}, False),
        ({}, False),
    ],
)
def test_full_is_not_as_good_where_margins_settle_more_often_or_go_further(
    changes, as_good, caplog
):
    config = replace(CONFIG, n_blocks=4, n_workers=1, **changes)
    limit = peak(SHORT, config, storage="full")
    assert limit < peak(SHORT, config)
    with caplog.at_level(logging.INFO):
        found = engine.plan(SHORT, replace(config, max_memory=limit))
    # The data are cut anew, where it settles less often.
    assert (found.config.storage, found.sizes.n_turns) == ("full", config.settle or 1)
    (level,) = (r.levelno for r in caplog.records if "taking storage full" in r.getMessage())
    assert level == (logging.INFO if as_good else logging.WARNING)


def test_with_many_topics_rows_become_lists_first(caplog):
    many = corpus_of(16_000, 800, 20)  # of fewer documents the kernels of lists are the larger part
    config = replace(CONFIG, n_topics=ACTIVE_TOPICS, n_blocks=4)
    limit = peak(many, config, storage="sparse")
    assert limit < peak(many, config, n_blocks=2) and limit < peak(many, config, storage="full")
    assert taken(many, config, limit) == ("sparse", None, 4)
    assert caplog.records[0].levelno == logging.WARNING
    # Where even that is too large, as many are kept of each pair as fit.
    least = min(peak(many, config, storage="sparse", n_blocks=n) for n in (4, 2))
    storage, topk, _ = taken(many, config, least - 1)
    assert storage == "topk" and topk < 30
    # Repairs know no lists.
    ways = families.find("lda").storages(replace(config, repair_after=(80,)))[1]
    assert ways[0]["storage"] == "topk"


def test_what_comes_at_a_price_is_a_warning(caplog):
    config = replace(CONFIG, n_blocks=4)
    limit = peak(LONG, config, storage="topk", topk=3)
    assert limit < peak(LONG, config)
    assert taken(LONG, config, limit) == ("topk", 3, 4)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(f"max_memory {limit / MIB:.2f} MiB: taking storage topk")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"storage": "margins"}, ("margins", None, 2)),
        ({"storage": "margins", "n_blocks": 2}, ("margins", None, 2)),
        ({"storage": "topk", "topk": 2}, ("topk", 2, 4)),
        ({"topk": 2}, ("topk", 2, 4)),
        ({"storage": "topk"}, ("topk", 2, 4)),
        ({"storage": "topk", "n_blocks": 2}, ("topk", 2, 2)),
        ({"n_blocks": 4}, ("topk", 2, 4)),
    ],
)
def test_what_is_given_is_not_changed(given, found):
    config = replace(CONFIG, **given)
    storage, topk, n_blocks = found
    limit = peak(LONG, storage=storage, topk=topk, n_blocks=n_blocks)
    if "storage" not in given:  # what is left open would fit otherwise
        limit = min(limit, peak(LONG, storage="margins", n_blocks=2) - 1)
    assert taken(LONG, config, limit) == found


@pytest.mark.parametrize(
    ("given", "least"),
    [
        ({}, {"storage": "topk", "topk": 1}),
        ({"storage": "full"}, {"storage": "full"}),
        ({"storage": "margins", "n_blocks": 3}, {"storage": "margins"}),
        ({"storage": "topk", "topk": 3}, {"storage": "topk", "topk": 3}),
    ],
)
def test_too_little_is_refused_with_what_the_least_takes(given, least, monkeypatch):
    config = replace(CONFIG, **given)
    numbers = [given["n_blocks"]] if "n_blocks" in given else [4, 2]
    limit, n_blocks = min((peak(LONG, **{**least, "n_blocks": n}), n) for n in numbers)
    taken(LONG, config, limit)
    monkeypatch.setattr(engine, "Run", None)  # nothing is allocated
    named = least["storage"] + (f" with {least['topk']} kept" if "topk" in least else "")
    rule = (
        rf"max_memory must be at least {limit / MIB:.2f} MiB \(drawn, 2 workers, storage {named} "
        rf"in {n_blocks} blocks; fewer workers take less\), got '{(limit - 1) / MIB:.2f} MiB'"
    )
    with pytest.raises(ParameterError, match=rule):
        engine.fit(LONG, replace(config, max_memory=limit - 1))


def test_a_fit_is_that_of_what_was_taken(threaded_fit):
    counts = LONG.as_sparse()[:40].toarray()
    corpus = Corpus.from_sparse(counts)
    config = FitConfig(n_topics=8, n_workers=2, n_blocks=4, inference="vb", tol=0.0)
    planned = engine.plan(corpus, replace(config, storage="topk", topk=1), release=True)
    limit = peak_bytes(planned)
    ended = threaded_fit(counts, n_topics=8, n_workers=2, n_blocks=4, n_passes=2, max_memory=limit)
    assert (ended.result.config.storage, ended.result.config.topk) == ("topk", 1)
    assert ended.layout.total_bytes == planned.total_bytes
    ended.assert_passes_are_whole(2)


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("1", 1), (4096, 4096), (np.int64(7), 7), ("2K", 2048), ("2k", 2048), ("3MiB", 3 * MIB),
        ("8G", 8 * 2**30), ("0.5g", 2**29), (" 1T ", 2**40),
    ],
)  # fmt: skip
def test_a_size_has_binary_suffixes(text, n_bytes):
    assert size_in_bytes("max_memory", text) == n_bytes
    assert FitConfig(max_memory=text).max_memory == n_bytes


@pytest.mark.parametrize(
    "wrong", ["", "G", "8GB", "8X", "1.5", "-1", "1e9", "8 G", "0", "0K", "9" * 30, "٣", 0, -1, 1.5,
              True, b"8G", [8]],
)  # fmt: skip
def test_a_size_that_is_none_is_refused(wrong):
    with pytest.raises(ParameterError, match="max_memory must be a whole number of bytes from 1"):
        FitConfig(max_memory=wrong)


def test_a_number_of_topics_that_no_memory_holds_is_refused_at_once():
    with pytest.raises(ParameterError, match="max_memory must be at least"):
        engine.plan(LONG, FitConfig(n_topics=2**31 - 1, n_workers=2, max_memory="8G"))


def test_topics_that_travel_keep_their_blocks():
    config = replace(CONFIG, storage="full", axis="topics")
    n_blocks, limit = engine.plan(LONG, config).sizes.n_blocks, peak(LONG, config)
    assert n_blocks > 2
    assert taken(LONG, config, limit) == ("full", None, n_blocks)
    with pytest.raises(ParameterError, match=f"storage full in {n_blocks} blocks"):
        engine.plan(LONG, replace(config, max_memory=limit - 1))
