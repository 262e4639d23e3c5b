"""The only module that writes generated files: all of them, or none.

Files are an in-memory map from a path below the output folder to bytes. Everything is
staged first, on the same file system, and renamed after: a full disk or a read-only
folder is noticed before the first old file is touched.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from shaderloom.errors import Diagnostic, OutputError, Position
from shaderloom.files import read_file

BUILT = "spv/"  # what a compiler decides; not committed, not checked
# What ``compare`` may find.
PROBLEMS = {
    "missing": "the spec makes it, and it is not there",
    "stale": "it is not what the spec and the templates make",
    "orphan": "nothing makes it; if the build leaves it, it is yours to move or delete",
}
_SIGNATURE = b"enerated by shaderloom"  # G or g, in the first bytes of every text file
_STAGING = ".shaderloom-staging-"


@dataclass(frozen=True)
class Written:
    """What ``write`` did, as sorted paths below the output folder."""

    changed: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """A file that ``check`` complains about: ``problem`` is missing, stale or orphan."""

    path: str
    problem: str


def write(out: Path, label: str, files: Mapping[str, bytes], remove_stale: bool = True) -> Written:
    """Write ``files`` below ``out`` and remove what an earlier build left there.

    A file that already has its bytes is not touched. ``label`` is what errors call the
    folder. Raises OutputError; the previous output is then still whole.
    """
    changed = sorted(path for path, data in files.items() if _read(out / path) != data)
    removed = stale(out, files) if remove_stale else []
    if not changed and not removed:
        return Written((), ())
    staging: Path | None = None
    here = ""
    try:
        if out.exists() and not out.is_dir():
            raise NotADirectoryError(20, "it is a file, not a folder")
        out.mkdir(parents=True, exist_ok=True)
        # Below spv/, which git ignores, in case a kill -9 leaves it behind.
        here = BUILT.rstrip("/")
        (out / here).mkdir(exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=out / BUILT))
        for here in changed:
            target = out / here
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():
                raise IsADirectoryError(21, "it is a folder, not a file")
            if not os.access(target.parent, os.W_OK):
                raise PermissionError(13, "the folder is read-only")
            staged = staging / here
            staged.parent.mkdir(parents=True, exist_ok=True)
            staged.write_bytes(files[here])
        for here in changed:
            os.replace(staging / here, out / here)
        for here in removed:
            (out / here).unlink(missing_ok=True)
    except OSError as error:
        where = Position(f"{label}/{here}" if here else label)
        reason = error.strerror or str(error)
        raise OutputError(Diagnostic(where, f"cannot write: {reason}")) from None
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)
    return Written(tuple(changed), tuple(removed))


def compare(out: Path, files: Mapping[str, bytes]) -> tuple[Difference, ...]:
    """Hold the committed part of ``out`` against ``files``; build output is left aside."""
    found = []
    for path, data in files.items():
        present = _read(out / path)
        if present is None:
            found.append(Difference(path, "missing"))
        elif present != data:
            found.append(Difference(path, "stale"))
    known = set(files)
    for path in _files(out):
        if path not in known and not path.startswith(BUILT):
            found.append(Difference(path, "orphan"))
    return tuple(sorted(found, key=lambda difference: difference.path))


def stale(out: Path, known: Collection[str]) -> list[str]:
    """Return what an earlier build made and is not ``known``; other people's files stay.

    Only in folders that a build writes to: ``out`` may lie above another project's output.
    """
    folders = {os.path.dirname(path) for path in known}
    return [
        path
        for path in _files(out)
        if path not in known
        and (path.startswith(BUILT) or (os.path.dirname(path) in folders and _signed(out / path)))
    ]


def _signed(path: Path) -> bool:
    try:
        if not path.is_file():
            return False  # opening a pipe would wait for whoever writes into it
        with path.open("rb") as file:
            return _SIGNATURE in file.read(256)
    except OSError:
        return False


def _files(out: Path) -> list[str]:
    """Return every file below ``out``; what vanishes meanwhile (another build's) is left out."""
    found = []
    for folder, _, names in os.walk(out):
        here = Path(folder).relative_to(out).as_posix()
        if _STAGING not in here:
            found += [name if here == "." else f"{here}/{name}" for name in names]
    return sorted(found)


def _read(path: Path) -> bytes | None:
    try:
        return read_file(path)
    except OSError:
        return None
