"""Fixtures that run fits."""

import pytest

from tests.runtime import fits


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> fits.Fits:
    """Fits whose workers are processes, as they truly are."""
    return fits.with_processes(monkeypatch)


@pytest.fixture
def threaded_fit(monkeypatch: pytest.MonkeyPatch) -> fits.Fits:
    """Fits whose workers are threads, which start at once."""
    return fits.with_threads(monkeypatch)
