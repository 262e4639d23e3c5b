"""Reading files that somebody else may have put there."""

from __future__ import annotations

import errno
from pathlib import Path


def read_file(path: Path) -> bytes:
    """Return the contents of a regular file; raises OSError.

    A pipe or a device is refused: reading it may wait for ever, or find no end.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.read_bytes()
