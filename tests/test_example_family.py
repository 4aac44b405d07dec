"""A family in one file outside the package is held to the same contract as those inside."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

TOP = Path(__file__).parents[1]
EXAMPLE = TOP / "examples" / "families" / "exponential_family.py"


def load():
    spec = importlib.util.spec_from_file_location("exponential_family", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_contract_suite_holds_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    load().offer(tmp_path / "site")
    path = os.pathsep.join([str(TOP), str(EXAMPLE.parent), str(tmp_path / "site")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "exponential"]
    done = subprocess.run(
        [*command, str(TOP / "tests" / "families" / "test_contract.py")],
        env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed, \d+ deselected", done.stdout)
    assert passed and int(passed[1]) >= 8


def test_its_gain_is_an_integral():
    x = np.array([0.5, 2.0, 3.5])
    kind = load().Exponential(1, None, {"mean": np.array([2.0]), "shape": np.array([0.5])})
    prior = stats.gamma(0.5, scale=1 / (0.5 * 2.0))

    def joint(rate):
        return prior.pdf(rate) * np.prod(rate * np.exp(-rate * x))

    total = integrate.quad(joint, 0, 30, points=[1e-3, 0.1, 1.0])[0]
    found = kind.expect(np.array([3.0]), np.array([[x.sum()]]))
    assert found.gain[0] == pytest.approx(np.log(total), rel=1e-5)


def test_it_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(TOP)}, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) > 0.8
