"""A content-addressed store of build results.

An entry's key is the digest of everything that its value depends on, so an entry is
never stale; it is written whole, after success only, and checked when read.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

_MAGIC = b"shaderloom-cache-1\n"


def digest(*parts: str | bytes) -> str:
    """Return the SHA-256 of the parts; each part's length is hashed, so parts cannot run over."""
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogateescape") if isinstance(part, str) else part
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return hasher.hexdigest()


def default_folder() -> Path:
    """Return ``$SHADERLOOM_CACHE``, else the user's cache folder for shaderloom."""
    chosen = os.environ.get("SHADERLOOM_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "shaderloom"


class Cache:
    """Entries below ``folder``, or nowhere when it is None; losing one costs time only."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def get(self, key: str) -> bytes | None:
        """Return the value stored under ``key``; a missing or damaged entry is None."""
        if self.folder is None:
            return None
        try:
            data = self._path(self.folder, key).read_bytes()
        except OSError:
            return None
        head, value = data[: len(_MAGIC) + 32], data[len(_MAGIC) + 32 :]
        if head != _MAGIC + hashlib.sha256(value).digest():
            return None
        return value

    def put(self, key: str, value: bytes) -> None:
        """Store ``value``; a cache that cannot be written is no error, only no help."""
        if self.folder is None:
            return
        path = self._path(self.folder, key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_MAGIC + hashlib.sha256(value).digest() + value)
                os.replace(temporary, path)
            except OSError:
                os.unlink(temporary)
        except OSError:
            return

    @staticmethod
    def _path(folder: Path, key: str) -> Path:
        return folder / key[:2] / key[2:]
