"""Options and fixtures of all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

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
