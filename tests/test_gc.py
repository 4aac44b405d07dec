"""`python -m esvi_shm.gc` is thin: what it removes is tested with `shared.runs` and `cache`."""

import subprocess
import sys

import pytest

from esvi_shm import cache, gc
from esvi_shm.shared import runs


def test_it_prints_what_was_removed(monkeypatch, capsys) -> None:
    monkeypatch.setattr(runs, "remove_leftovers", lambda: ["/dev/shm/esvi-0-1-a"])
    monkeypatch.setattr(cache, "remove_other_versions", lambda: ["/x/kernels-0"])
    assert gc.main([]) == 0
    assert capsys.readouterr().out == "removed /dev/shm/esvi-0-1-a\nremoved /x/kernels-0\n"


def test_it_says_that_there_is_nothing(monkeypatch, capsys) -> None:
    monkeypatch.setattr(runs, "remove_leftovers", lambda: [])
    monkeypatch.setattr(cache, "remove_other_versions", lambda: [])
    assert gc.main([]) == 0
    assert capsys.readouterr().out == "nothing to remove\n"


def test_it_takes_no_arguments(capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        gc.main(["everything"])
    assert caught.value.code == 2


def test_it_imports_only_the_standard_library() -> None:
    program = (
        "import sys, esvi_shm.gc, esvi_shm.cache\n"
        "from esvi_shm.shared import runs\n"
        "heavy = {'numpy', 'numba', 'scipy', 'sklearn', 'psutil'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
