"""The package as users install it: what a wheel carries, and what an editable install uses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from loom_support import REPOSITORY

pytestmark = pytest.mark.wheel

SOURCES = (
    "pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "variants.yaml", "templates",
    "codegen", "runtime", "generated",
)  # fmt: skip
# No system compiler: a path without programs, and no library or module of this checkout.
BARE = {name: value for name, value in os.environ.items() if not name.startswith("SHADERLOOM_")}
BARE |= {"PATH": "/nowhere"}
BARE.pop("PYTHONPATH", None)
FOLDER = "from shaderloom_runtime.registry import load_registry as load; print(load().folder)"
LOOM = "import sys; from shaderloom.cli import main; sys.exit(main())"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout that nothing was built in."""
    folder = tmp_path_factory.mktemp("wheel") / "check out"
    folder.mkdir()
    for name in SOURCES:
        source = REPOSITORY / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("spv", "__pycache__", "*.egg-info")
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder)
    return folder


def run(command: Sequence[str | Path], cwd: Path, **environment: str) -> str:
    """Run a command that must succeed, far from system compilers; return what it printed."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**BARE, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def fresh_python(folder: Path, *arguments: str | Path) -> Path:
    """Make an environment with the package in it; its dependencies are those of this one."""
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    run([python, "-m", "pip", "install", "--quiet", "--no-deps", *arguments], folder)
    return python


def test_wheel_carries_its_shaders(checkout: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(tmp_path)]
    run([*pip, str(checkout)], tmp_path, SHADERLOOM_CACHE=cache)
    (wheel,) = tmp_path.glob("shaderloom-*-py3-none-any.whl")
    carried = {
        name.removeprefix("shaderloom_runtime/generated/")
        for name in zipfile.ZipFile(wheel).namelist()
        if name.startswith("shaderloom_runtime/generated/")
    }
    names = {path.stem for path in (checkout / "generated/glsl").glob("*.comp")}
    modules = {f"spv/{name}.spv" for name in names}
    assert carried == {"manifest.json", "dispatch.py", "spv/build.json", *modules}
    assert not (checkout / "generated/spv").exists()  # nothing is built in the source

    python = fresh_python(tmp_path / "fresh", wheel)
    libraries = {"PYTHONPATH": sysconfig.get_path("purelib")}
    folder = run([python, "-c", FOLDER], tmp_path, **libraries).strip()
    assert Path(folder).is_relative_to(tmp_path / "fresh")
    program = tmp_path / "fresh/bin/shaderloom-runtime"
    out = run([program, "verify", "--only", "*_half", "--quick"], tmp_path, **libraries)
    assert " 0 past the bound" in out
    assert out.endswith(": validation 0 messages\n")


def test_editable_install_uses_the_checkout(checkout: Path, tmp_path: Path) -> None:
    python = fresh_python(tmp_path / "fresh", "--editable", checkout)
    libraries = {"PYTHONPATH": sysconfig.get_path("purelib")}
    run(
        [python, "-c", LOOM, "build", "--quiet"],
        checkout,
        SHADERLOOM_CACHE=str(tmp_path / "cache"),
        **libraries,
    )
    folder = run([python, "-c", FOLDER], tmp_path, **libraries).strip()
    assert Path(folder) == checkout / "generated"
    program = tmp_path / "fresh/bin/shaderloom-runtime"
    out = run([program, "verify", "--only", "clamp_*"], tmp_path, **libraries)
    assert "2 variants, 36 cases, 0 past the bound" in out
