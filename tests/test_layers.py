"""The floors of the house: a module imports from floors below its own, or from its own room."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import esvi_shm

PACKAGE = Path(esvi_shm.__file__).parent
FLOORS = [
    {
        "errors", "config", "mixture_options", "frames", "arrays", "cache", "compile", "vector",
        "sparse", "indices",
    },
    {"corpus", "points", "counter", "special"},
    {"shared"},
    {"families"},
    {"runtime"},
    {"transports"},
    {
        "parameters", "compact", "intervals", "summary", "model", "metrics", "estimators", "store",
        "progress", "command", "mixture", "mixture_store", "mixture_holdout",
        "mixture_estimator", "fit_mixture", "fit_nodes",
    },
    {"fit", "infer", "evaluate", "simulate", "gc", "launch"},
]  # fmt: skip
#: Floors whose modules are one room each: a module may import others of its floor.
ONE_ROOM = {0, FLOORS.index(next(rooms for rooms in FLOORS if "model" in rooms))}
#: Above all: the list of commands. `esvi_shm` itself has only lazy imports.
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
MODULES = sorted(PACKAGE.rglob("*.py"))


def imported(tree: ast.Module) -> list[str]:
    """Modules of the package that are imported anywhere but for the eyes of a type checker."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name.removeprefix("esvi_shm.") for name in names if name.startswith("esvi_shm.")]


def test_modules_import_from_below():
    wrong, looked_at = [], 0
    for path in MODULES:
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for name in imported(ast.parse(path.read_text())):
            other = name.split(".")[0]
            looked_at += 1
            if other not in FLOOR:
                assert other.startswith("__") or other == room, f"{other} has no floor"
            elif other != room and FLOOR[other] >= FLOOR.get(room, len(FLOORS)):
                if FLOOR[other] != FLOOR.get(room) or FLOOR[other] not in ONE_ROOM:
                    wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert wrong == []
    assert looked_at > 100


def test_the_readme_has_the_same_table():
    told = [set() for _ in FLOORS]
    text = (PACKAGE.parent / "README.md").read_text()
    for floor, names in re.findall(r"^\| (\d) \| ([^|]*) \|", text, re.M):
        told[int(floor)] |= set(re.findall(r"`(\w+)/?`", names))
    assert told == FLOORS
    rooms = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.name[0] != "_"}
    assert rooms == set().union(*FLOORS)


def test_modules_stay_small():
    assert [str(p) for p in MODULES if len(p.read_text().splitlines()) > 500] == []


def test_a_worker_imports_little():
    """numba itself imports the top of scipy; none of its subpackages is needed."""
    program = "import sys, esvi_shm.runtime.worker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    modules = done.stdout.split()
    assert "esvi_shm.runtime.worker" in modules
    for name in ("sklearn", "pandas", "matplotlib", "tqdm", "esvi_shm.model", "esvi_shm.fit"):
        assert name not in modules
    public = [m for m in modules if m.startswith("scipy.") and not m.split(".")[1].startswith("_")]
    assert public in ([], ["scipy.version"])
