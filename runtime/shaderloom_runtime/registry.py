"""The generated data: which shaders there are, their modules, and the dispatcher.

``load_registry(folder=None) -> Registry`` reads ``manifest.json``, ``dispatch.py`` and
``spv/build.json`` and insists that all three are of one layout. ``default_folder()`` is what the
environment variable SHADERLOOM_GENERATED says, else the package's own ``generated`` in an
installed wheel, else the checkout's. ``needed_features() -> frozenset[str]`` names every device
feature that a shader needs (of the manifest alone, which is there before a build).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import NotBuilt

SCHEMA = 1  # of manifest.json and build.json
_PACKAGE = Path(__file__).parent


@dataclass(frozen=True)
class Operand:
    """What a shader binds at one place; ``packed_by`` is the op that makes a constant's layout."""

    binding: int
    name: str  # of the operand: in, weight, ...
    storage: str  # texture2d, texture3d, buffer or vec4_buffer
    packed_by: str


@dataclass(frozen=True)
class Shader:
    """One variant of the manifest; ``missing`` says why it was not compiled, empty if it was."""

    name: str
    family: str
    op: str
    dtype: str  # float or half
    bindings: tuple[tuple[int, str], ...]  # (number in set 0, kind)
    read_only: tuple[int, ...]
    operands: tuple[Operand, ...]
    push_constant_size: int  # bytes
    features: tuple[str, ...]
    subgroup_size: int
    shared_memory: int  # bytes that it may take, 0 for what every device has
    cooperative_matrix: str  # shape that the device must list, MxNxK, or empty
    sha256: str  # of the SPIR-V
    missing: str


@dataclass(frozen=True)
class Registry:
    """The shaders by name, and the generated ``dispatch.py`` as a module."""

    folder: Path
    layout_hash: str
    shaders: Mapping[str, Shader]
    dispatch: ModuleType
    _modules: dict[str, bytes] = field(default_factory=dict, repr=False)

    def operand(self, shader: str, name: str) -> Operand | None:
        """Return how a shader takes the operand ``name``, None if it does not."""
        operands = self.shaders[shader].operands
        return next((operand for operand in operands if operand.name == name), None)

    def code(self, name: str) -> bytes:
        """Return the SPIR-V of a shader; the same object every time.

        Raises:
            NotBuilt: it was not compiled, or its file is absent or is not the one of build.json.
        """
        if name not in self._modules:
            shader = self.shaders[name]
            if shader.missing:
                raise NotBuilt(f"{name} was not compiled: {shader.missing}")
            code = _read(self.folder / f"spv/{name}.spv")
            if hashlib.sha256(code).hexdigest() != shader.sha256:
                raise NotBuilt(
                    f"spv/{name}.spv is not the one of build.json: run 'shaderloom build'"
                )
            self._modules[name] = code
        return self._modules[name]


def default_folder() -> Path:
    """Return $SHADERLOOM_GENERATED, the package's own generated data, or the checkout's."""
    if chosen := os.environ.get("SHADERLOOM_GENERATED"):
        return Path(chosen)
    installed = _PACKAGE / "generated"
    return installed if installed.is_dir() else _PACKAGE.parents[1] / "generated"


def load_registry(folder: Path | None = None) -> Registry:
    """Read the generated data of ``folder`` or the default one; once for each folder.

    Raises:
        NotBuilt: a file is absent or damaged, or the files are not of one build.
    """
    folder = folder or default_folder()
    with _intact(folder):
        return _load(folder)


def needed_features() -> frozenset[str]:
    """Return every device feature that some shader of the manifest needs.

    Raises:
        NotBuilt: there is no manifest, or it is damaged.
    """
    path = default_folder() / "manifest.json"
    with _intact(path):
        shaders = _json(path)["shaders"].values()
        return frozenset(feature for shader in shaders for feature in shader["features"])


@contextmanager
def _intact(path: Path) -> Iterator[None]:
    """Raise NotBuilt where a file turns out to be JSON or Python, but not what a build wrote."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, SyntaxError) as error:
        raise NotBuilt(f"{path} is damaged: run 'shaderloom build'") from error


@functools.cache
def _load(folder: Path) -> Registry:
    manifest, build = _json(folder / "manifest.json"), _json(folder / "spv/build.json")
    dispatch = _module(folder / "dispatch.py")
    hashes = {
        "manifest.json": manifest["layout_hash"],
        "spv/build.json": build["layout_hash"],
        "dispatch.py": dispatch.LAYOUT_HASH,
    }
    if len(set(hashes.values())) > 1:
        found = ", ".join(f"{name} {value}" for name, value in hashes.items())
        raise NotBuilt(f"{folder} is not of one build: {found}; run 'shaderloom build'")
    shaders = {
        name: _shader(name, entry, build["shaders"].get(name, {"missing": "not in build.json"}))
        for name, entry in manifest["shaders"].items()
    }
    return Registry(folder, manifest["layout_hash"], shaders, dispatch)


def _shader(name: str, entry: Mapping[str, Any], built: Mapping[str, Any]) -> Shader:
    bindings = entry["bindings"]
    push = entry["push_constants"]
    return Shader(
        name=name,
        family=entry["family"],
        op=entry["op"],
        dtype=entry["axes"]["dtype"],
        bindings=tuple((b["binding"], b["kind"]) for b in bindings),
        read_only=tuple(b["binding"] for b in bindings if b["access"] == "read"),
        operands=tuple(
            Operand(b["binding"], b["operand"], b["storage"], b["packed_by"])
            for b in bindings
            if "operand" in b
        ),
        push_constant_size=push["size"] if push else 0,
        features=tuple(entry["features"]),
        subgroup_size=entry["subgroup_size"],
        shared_memory=entry.get("shared_memory", 0),
        cooperative_matrix=entry.get("cooperative_matrix", ""),
        sha256=built.get("sha256", ""),
        missing=built.get("missing", ""),
    )


def _module(path: Path) -> ModuleType:
    source = _read(path)
    # Named by its content, so that the generated data of two builds can be loaded side by side.
    name = f"_shaderloom_dispatch_{hashlib.sha256(source).hexdigest()[:16]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None, "a .py file always has a loader"
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look their module up while it runs
        try:
            exec(compile(source, str(path), "exec"), module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _json(path: Path) -> Any:
    try:
        data = json.loads(_read(path))
        schema = data["schema"]
    except (ValueError, LookupError, TypeError) as error:
        raise NotBuilt(f"{path} is damaged: run 'shaderloom build'") from error
    if schema != SCHEMA:
        raise NotBuilt(f"{path} has schema {schema}, this runtime reads {SCHEMA}")
    return data


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise NotBuilt(f"{path}: {reason}; run 'shaderloom build'") from error
