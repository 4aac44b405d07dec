"""Options and fixtures of all tests."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from esvi_shm.runtime.signals import ASKING_TO_STOP

# Kernels compile within the first example, which says nothing of the code under test.
settings.register_profile("kernels", deadline=None, max_examples=60)
settings.load_profile("kernels")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--data-folder",
        default=os.environ.get("ESVI_SHM_DATA"),
        help="folder with docword.NAME.txt.gz corpora (or ESVI_SHM_DATA); without it the tests "
        "on real data are skipped",
    )


@pytest.fixture(scope="session")
def data_folder(request: pytest.FixtureRequest) -> Path:
    """The folder of real corpora."""
    given = request.config.getoption("--data-folder")
    if not given:
        pytest.skip("no --data-folder nor ESVI_SHM_DATA: no real corpora to read")
    folder = Path(given)
    if not folder.is_dir():
        pytest.fail(f"--data-folder {folder} is no folder")
    return folder


@pytest.fixture(autouse=True)
def signals_are_not_ignored():
    """As a shell leaves them to tests in the background, and so to the processes they start."""
    ignored = [n for n in ASKING_TO_STOP if signal.getsignal(n) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.default_int_handler)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
