"""The model directory: written aside, swapped in, repaired after an interruption.

    manifest.json    format version, configuration, corpus digest and sizes, versions, SHA-256
    lambda.npy       float32 (V, K)       gamma.npy    float32 (D, K)       or as in `compact`
    alpha.npy        float64 (K,)         eta.npy      float64 (V,)
    vocabulary.txt   word v on line v     history.csv  one evaluation a line
    summary.json     the figures of the fit

That is LDA; what a mixture has instead of the first three lines is in `mixture_store`.

A save writes `.NAME.new` beside the target, its manifest last, all of it to the disk; renames an
older model to `.NAME.old`; renames the new one into place; removes the old one. Whatever moment
it is cut off at, one complete model is there, and `repair` (called by `save`, and by `load` where
there is no model) puts it in place: `.NAME.new` if it is complete, else `.NAME.old`. Savers lock
the folder above against one another, readers against savers. No pickle is written or read.
"""

import contextlib
import fcntl
import hashlib
import io
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

import esvi_shm
from esvi_shm import arrays, compact, mixture_store
from esvi_shm.errors import ModelError
from esvi_shm.mixture import FittedMixture
from esvi_shm.model import FittedModel
from esvi_shm.parameters import Parameters
from esvi_shm.runtime.signals import finishing
from esvi_shm.shared.preflight import free_space

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
_MATRICES, _PRIORS = ("lambda", "gamma"), ("alpha", "eta")
_SIZES: tuple[str, ...] = ("n_documents", "n_words", "n_pairs", "n_tokens", "n_topics")
_OTHERS = ("vocabulary.txt", "history.csv", "summary.json")
#: Bytes that are read at a time: whole numbers of every type of floats.
PIECE = 2**20


def check_target(folder: str | os.PathLike[str]) -> Path:
    """Make sure that a model can be saved there, before the work begins; leaves no trace.

    Raises
    ------
    ModelError
        If something that is not a model is in the way, or the folder cannot be written.
    """
    target = _nameable(folder)
    if not target.name:
        raise ModelError(f"{target}: the output folder must have a name of its own")
    if target.is_symlink():
        raise ModelError(f"{target}: the output folder must not be a symbolic link")
    if target.exists():
        if not target.is_dir():
            raise ModelError(f"{target}: the output folder exists and is a file")
        if os.path.ismount(target):
            raise ModelError(
                f"{target}: the output folder must not be a mount point; name one in it"
            )
        if any(target.iterdir()) and not is_model(target):
            raise ModelError(
                f"{target}: the output folder exists and is not a model, or holds other files"
            )
    parent = target.absolute().parent
    while not parent.exists():
        if parent.is_symlink():
            raise ModelError(f"{target}: {parent} is a symbolic link to nothing")
        parent = parent.parent
    if is_model(parent):
        raise ModelError(f"{target}: the output folder must not lie in that of a model, {parent}")
    try:
        # Permission bits do not tell of a read-only or special file system; trying does.
        with finishing():
            os.rmdir(tempfile.mkdtemp(prefix=f".{target.name}.", dir=parent))
    except OSError as error:
        raise ModelError(f"{target}: cannot write in {parent}: {error.strerror}") from None
    return target


def check_room(folder: str | os.PathLike[str], n_bytes: int) -> None:
    """Refuse a place that is too full for the arrays of a model, before it is fitted.

    An older one there is removed only when the new one is whole.

    Raises
    ------
    ModelError
    """
    parent = Path(folder).absolute().parent
    while not parent.exists():
        parent = parent.parent
    free = free_space(parent)
    if n_bytes > free:
        rule = f"the model takes about {n_bytes / 2**20:,.1f} MiB, {free / 2**20:,.1f} MiB are free"
        raise ModelError(f"{folder}: {rule} in {parent}")


def _nameable(folder: str | os.PathLike[str]) -> Path:
    """The path, if a file system can have something of that name."""
    try:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.lstat(folder)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(f"{os.fspath(folder)!r}: cannot be a folder: {reason}") from None
    return Path(folder)


def check_words(words: Sequence[str]) -> None:
    """Refuse a word that `vocabulary.txt` cannot hold.

    Raises
    ------
    ModelError
    """
    for v, word in enumerate(words):
        if "\n" in word or "\r" in word:
            raise ModelError(f"word {v} must not contain a line break, got {word!r}")
        try:
            word.encode()
        except UnicodeEncodeError:
            raise ModelError(f"word {v} must be valid Unicode, got {word!r}") from None


def save(model: FittedModel | FittedMixture, folder: str | os.PathLike[str]) -> None:
    """Write a model directory, in place of an older one.

    Parameters
    ----------
    model : FittedModel or FittedMixture
    folder : path

    Raises
    ------
    ModelError
        If the place is not fit for it, or a word holds a line break. Nothing is changed then.
    OSError
        If the disk is full. An older model stays as it was.
    Interrupted
        At the second signal, likewise; at the first, the model is saved before it takes effect.
    """
    target = check_target(folder)
    if isinstance(model, FittedModel):
        check_words(model.words)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.absolute().parent, fcntl.LOCK_EX), finishing() as signals:
        repair(target)
        fresh, old = _beside(target, "new"), _beside(target, "old")
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            fresh.mkdir()
            _write_all(model, fresh)
            signals.may_abort = False  # what is left takes no time
            if target.exists():
                os.rename(target, old)
            os.rename(fresh, target)
        except BaseException as error:
            if old.exists() and not target.exists():
                os.rename(old, target)
            shutil.rmtree(fresh, ignore_errors=True)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = str(target)  # of a write nobody else says where it was to go
            raise
        _sync_folder(target.parent)
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    """Lock a folder itself, which leaves no file behind; as far as its file system knows locks."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, how)
        yield


def repair(folder: str | os.PathLike[str]) -> None:
    """Put in place what an interrupted save left, and remove what is no longer needed.

    For the holder of the lock: the traces of a save that is under way look the same.
    """
    target = Path(folder)
    fresh, old = _beside(target, "new"), _beside(target, "old")
    if not target.exists():
        if is_model(fresh):
            os.rename(fresh, target)
        elif old.exists():
            os.rename(old, target)
    if target.exists():
        for left in (fresh, old):
            shutil.rmtree(left, ignore_errors=True)


def load_topics(folder: str | os.PathLike[str]) -> FittedModel:
    """Read the model directory of a topic model; ModelError if it is another one."""
    model = load(folder)
    if not isinstance(model, FittedModel):
        raise ModelError(f"{folder}: must be a topic model, and is a mixture ({model.family})")
    return model


def load(folder: str | os.PathLike[str]) -> Any:
    """Read a model directory.

    The large arrays are mapped from the files, not read into memory.

    Parameters
    ----------
    folder : path

    Returns
    -------
    FittedModel or FittedMixture

    Raises
    ------
    ModelError
        If it is not a model, of a newer format, or damaged, or a Dirichlet parameter is not
        finite and greater than 0; the message names the file.
    """
    target = _nameable(folder)
    parent = target.absolute().parent
    if not target.exists() and parent.is_dir():
        # In a folder that can only be read nothing is under way.
        with contextlib.suppress(OSError), _locked(parent, fcntl.LOCK_EX):
            repair(target)
    with _locked(parent, fcntl.LOCK_SH):
        return _read(target)


def _read(target: Path) -> Any:
    manifest = _read_manifest(target)
    is_mixture = mixture_store.is_mixture(manifest)
    if is_mixture:
        names = mixture_store.names(manifest["sha256"])
    else:
        names = {f"{name}.npy" for name in _PRIORS} | {*_OTHERS}
        names = names.union(*(compact.names(name, manifest["sha256"]) for name in _MATRICES))
    if wrong := sorted(names ^ set(manifest["sha256"])):
        rule = f"must list the files {', '.join(sorted(names))}"
        raise ModelError(f"{target / MANIFEST}: {rule}, and differs in {wrong[0]!r}")
    for name, expected in manifest["sha256"].items():
        path = target / name
        if not path.is_file():
            raise ModelError(f"{path}: the file is missing")
        found, fault = _look_through(path, not is_mixture)
        if found != expected:
            raise ModelError(f"{path}: the file is damaged: its SHA-256 is not the manifest's")
        if fault is not None:
            raise ModelError(f"{path}: {fault}")
    try:
        return mixture_store.parse(target) if is_mixture else _parse(target, names)
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        # What a save wrote is whole, its sums say; someone wrote other files, and sums for them.
        raise ModelError(f"{target}: the files do not hold a model: {error}") from None


def _look_through(path: Path, positive: bool = True) -> tuple[str, str | None]:
    """A file's SHA-256, and what is wrong with a number of its array; the file is read once."""
    digest, fault = hashlib.sha256(), None
    with open(path, "rb") as file:
        dtype, row_length = _header(file) if path.suffix == ".npy" else (None, 1)
        begin = file.tell()
        file.seek(0)
        digest.update(file.read(begin))
        while piece := file.read(PIECE):
            digest.update(piece)
            if dtype is None or fault is not None:
                continue
            values = np.frombuffer(piece, dtype, len(piece) // dtype.itemsize)
            least = 0.0 if positive else -np.inf
            # A nan is neither.
            if len(values) and not (values.min() > least and values.max() < np.inf):
                wrong = int(np.argmin((values > least) & (values < np.inf)))
                at = (file.tell() - len(piece) - begin) // dtype.itemsize + wrong
                row, column = divmod(at, row_length)
                fault = (
                    f"the numbers must be finite{' and greater than 0' * positive}, got "
                    f"{float(values[wrong])!r} in row {row}, column {column} (from 0)"
                )
    return digest.hexdigest(), fault


def _header(file: BinaryIO) -> tuple[np.dtype[Any] | None, int]:
    """The type of an array of floats in a .npy file and the length of its rows; reads up to them.

    No type where it is another array, or none, which `_parse` finds.
    """
    try:
        stored = arrays.Rows(file)
    except ValueError:
        return None, 1
    dtype, shape = stored.dtype, stored.shape
    return (dtype if dtype.kind == "f" else None), (shape[1] if len(shape) == 2 else 1)


def _parse(target: Path, names: Iterable[str]) -> FittedModel:
    words = (target / "vocabulary.txt").read_text(encoding="utf-8").split("\n")[:-1]
    history = mixture_store.read_history(target)
    summary = dict(json.loads((target / "summary.json").read_text()))
    alpha, eta = (np.load(target / f"{name}.npy", allow_pickle=False) for name in _PRIORS)
    V, K = len(words), alpha.size
    if eta.shape != (V,) or not history:
        raise ValueError(f"there must be a prior for {V} words and a history, got {eta.shape}")
    lambda_ = compact.read_rows(target, "lambda", names, eta[:, None], K)
    gamma = compact.read_rows(target, "gamma", names, alpha, K)
    shapes = {"lambda": (V, K), "gamma": (len(gamma), K), "alpha": (K,), "eta": (V,)}
    for (name, shape), array in zip(shapes.items(), (lambda_, gamma, alpha, eta), strict=True):
        if array.shape != shape or array.dtype.kind != "f":
            raise ValueError(f"{name} must be floats of shape {shape}, got {array.shape}")
    # Words are few, and whoever loads a model asks for them; documents may be many.
    if isinstance(lambda_, compact.CompactRows):
        lambda_ = np.asarray(lambda_)
    parameters = Parameters(lambda_, None, [gamma], alpha, eta)
    return FittedModel(parameters, words, history, summary)


def is_model(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a model of any version, whole or damaged, and nothing else."""
    try:
        manifest = json.loads(Path(folder, MANIFEST).read_text())
        names = {MANIFEST, *manifest["sha256"]}
        return "format_version" in manifest and set(os.listdir(folder)) <= names
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _read_manifest(target: Path) -> dict[str, Any]:
    path = target / MANIFEST
    if not path.is_file():
        raise ModelError(f"{target}: not a model directory: there is no {MANIFEST}")
    try:
        manifest = json.loads(path.read_text())
        version = manifest["format_version"]
        manifest["sha256"].items()
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise ModelError(f"{path}: the file is damaged") from None
    if version != FORMAT_VERSION:
        raise ModelError(
            f"{path}: format version {version}; this release reads version {FORMAT_VERSION}"
        )
    return manifest


def _beside(target: Path, kind: str) -> Path:
    return target.absolute().parent / f".{target.name}.{kind}"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Writer:
    """Writes the files of a model and remembers their SHA-256."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sha256: dict[str, str] = {}

    def write(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        digest = hashlib.sha256()
        with open(self.folder / name, "wb") as file:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        self.sha256[name] = digest.hexdigest()

    def array(self, name: str, shape: tuple[int, ...], dtype: Any, parts: Iterable[Any]) -> None:
        """A .npy file from parts of its rows."""
        header: BinaryIO = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header,
            {
                "descr": np.lib.format.dtype_to_descr(np.dtype(dtype)),
                "fortran_order": False,
                "shape": shape,
            },
        )

        def pieces() -> Iterable[bytes | memoryview]:
            yield header.getvalue()  # type: ignore[attr-defined]
            for part in parts:
                if part.size:
                    yield np.ascontiguousarray(part, dtype=dtype).data.cast("B")

        self.write(name, pieces())


def _write_topics(model: FittedModel, writer: _Writer) -> None:
    held = model.parameters
    n_words, n_topics = held.lambda_rows.shape
    n_documents = sum(len(part) for part in held.gamma_parts)
    eta, alpha = held.eta.astype(np.float32), held.alpha.astype(np.float32)
    of_words = np.broadcast_to(eta[:, None], (n_words, n_topics))
    compact.write_rows(writer, "lambda", held.lambda_chunks, of_words)
    of_documents = np.broadcast_to(alpha, (n_documents, n_topics))
    compact.write_rows(writer, "gamma", held.gamma_chunks, of_documents)
    writer.array("alpha.npy", (n_topics,), np.float64, [held.alpha])
    writer.array("eta.npy", (n_words,), np.float64, [held.eta])
    writer.write("vocabulary.txt", (f"{word}\n".encode() for word in model.words))


def _write_all(model: FittedModel | FittedMixture, folder: Path) -> None:
    writer = _Writer(folder)
    sizes = _SIZES
    if isinstance(model, FittedMixture):
        sizes = model.SIZES
        mixture_store.write(model, writer)
    else:
        _write_topics(model, writer)
    lines = [
        ",".join(model.history[0]._fields),
        *(",".join(map(repr, record)) for record in model.history),
    ]
    writer.write("history.csv", ["\n".join([*lines, ""]).encode()])
    writer.write("summary.json", [_json(model.summary)])
    import numba

    manifest = {
        "format_version": FORMAT_VERSION,
        "family": model.summary["config"]["family"],
        "config": model.summary["config"],
        "corpus_digest": model.summary["corpus_digest"],
        "sizes": {name: model.summary[name] for name in sizes},
        "versions": {
            "esvi_shm": esvi_shm.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": numba.__version__,
        },
        "sha256": writer.sha256.copy(),
    }
    writer.write(MANIFEST, [_json(manifest)])
    _sync_folder(folder)


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
