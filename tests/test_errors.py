"""Errors: they come out of another process as they went in."""

import pickle

import pytest

from esvi_shm import errors

MADE = {
    errors.ParameterError: ("seed_words", "cannot be given with %s", 3, "start_from"),
    errors.CorpusError: ("docword.x.txt", "must have 3 numbers", 7),
}


def kinds(of=errors.EsviError):
    for kind in of.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
        yield from kinds(kind)


@pytest.mark.parametrize("kind", list(kinds()), ids=lambda kind: kind.__name__)
def test_an_error_is_itself_after_a_pickle(kind):
    error = kind(*MADE.get(kind, ("something is wrong",)))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_a_rule_calls_other_parameters_as_where_they_were_given():
    error = errors.ParameterError(*MADE[errors.ParameterError])
    assert str(error) == "seed_words cannot be given with start_from, got 3"
    renamed = error.renamed(lambda name: name.upper())
    assert str(renamed) == "SEED_WORDS cannot be given with START_FROM, got 3"
    assert str(pickle.loads(pickle.dumps(renamed)).renamed(str.lower)) == str(error)
