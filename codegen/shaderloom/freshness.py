"""Is there anything to do? Decided by content, before anything slow is imported.

A build leaves a stamp beside the modules: a key over the tool, the compilers and the
options, and the digest of every file it read or wrote. When all of them still hold, the
build is done. Standard library only: this is the whole path of a build with no change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from shaderloom.cache import digest
from shaderloom.files import read_file
from shaderloom.outputs import stale

STAMP = "spv/.stamp.json"


def generator_identity() -> str:
    """Return a digest over this package's own source: a changed tool makes everything anew."""
    package = Path(__file__).parent
    files = sorted(p for p in package.rglob("*") if p.suffix in (".py", ".j2"))
    parts: list[str | bytes] = []
    for path in files:
        parts += [path.relative_to(package).as_posix(), path.read_bytes()]
    return digest(*parts)


def build_key(toolchain_identity: str, *options: str) -> str:
    """Return the key of a build: what made it, apart from its files."""
    return digest("build", generator_identity(), toolchain_identity, *options)


def stamp(key: str, inputs: Mapping[str, bytes], outputs: Mapping[str, bytes]) -> bytes:
    """Return the stamp of a build; paths are below the spec's and the output folder."""
    record = {
        "key": key,
        "inputs": {path: _sha(data) for path, data in sorted(inputs.items())},
        "outputs": {path: _sha(data) for path, data in sorted(outputs.items())},
    }
    return (json.dumps(record, indent=1) + "\n").encode()


def is_fresh(out: Path, project: Path, key: str) -> bool:
    """Whether the last build into ``out`` had this key, and no file of it has changed since
    or been left there by another.
    """
    try:
        record = json.loads((out / STAMP).read_bytes())
        same = record["key"] == key and all(
            _sha(read_file(folder / path)) == expected
            for folder, part in ((project, "inputs"), (out, "outputs"))
            for path, expected in record[part].items()
        )
        return same and not stale(out, {*record["outputs"], STAMP})
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
