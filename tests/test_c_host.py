"""The C host of examples/c_host builds without a warning, is right, and notices what is wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from loom_support import REPOSITORY, Project

EXAMPLE = REPOSITORY / "examples" / "c_host"


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command, e.g. ``run(program, VALIDATE="1")``."""
    return subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def build(folder: Path, source: Path, generated: Path, compiler: str = "gcc") -> Path:
    """Build the host, whose warnings are errors, with CMake; return the program."""
    need("cmake", compiler)
    configure = run(
        "cmake", "-S", source, "-B", folder, f"-DSHADERLOOM_GENERATED={generated}", CC=compiler
    )
    assert configure.returncode == 0, configure.stderr
    made = run("cmake", "--build", folder)
    assert made.returncode == 0, made.stdout + made.stderr
    return folder / "c_host"


def edit(path: Path, pattern: str, new: str) -> None:
    """Replace the one match of a regular expression in a file."""
    text, count = re.subn(pattern, new, path.read_text())
    assert count == 1, f"{path.name} has {count} times {pattern!r}"
    path.write_text(text)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, built: Project) -> Path:
    return build(tmp_path_factory.mktemp("c_host"), EXAMPLE, built.out)


def check_run(program: Path) -> None:
    ran = run(program, VALIDATE="1")
    assert (ran.returncode, ran.stderr) == (0, "")
    full, bare = re.findall(r"^relu.*\n.*bindings: (.*)\n.*error (\S+): within", ran.stdout, re.M)
    assert full[0] == "0 out 1 in 2 weight 3 bias 4 residual 5 scale"
    assert bare[0] == "0 out 1 in 2 weight 3 bias 4 in 5 bias"
    # Sums of ten products of numbers below 1; no error at all would be no comparison.
    assert all(0 < float(error) < 1e-5 for _, error in (full, bare))


def test_is_right_and_validation_has_nothing_to_say(host: Path) -> None:
    check_run(host)


def test_clang_builds_it_too(tmp_path: Path, built: Project) -> None:
    check_run(build(tmp_path, EXAMPLE, built.out, "clang"))


@pytest.mark.parametrize(
    "file, pattern, new, says",
    [
        pytest.param("main.c", r"n % 4\] = weight", "c % 4] = weight", "TOO LARGE", id="packing"),
        pytest.param(
            "kernel.c", r"grid\[0\], record->grid\[1\]", "grid[0], 1", "TOO LARGE", id="grid"
        ),
        pytest.param(
            "kernel.c",
            "USAGE_UNIFORM_BUFFER_BIT",
            "USAGE_TRANSFER_DST_BIT",
            "validation",
            id="usage",
        ),
        pytest.param(
            "kernel.c", r"  vkDestroySampler\(.*\n", "  (void)g;\n", "validation", id="leak"
        ),
    ],
)
def test_a_mistake_in_the_host_is_noticed(
    tmp_path: Path, built: Project, file: str, pattern: str, new: str, says: str
) -> None:
    source = shutil.copytree(EXAMPLE, tmp_path / "source")
    edit(source / file, pattern, new)
    ran = run(build(tmp_path / "build", source, built.out), VALIDATE="1")
    assert ran.returncode == 1
    assert says in ran.stdout


@pytest.mark.parametrize(
    "file, pattern",
    [
        ("registry.h", r'(define SHADERLOOM_LAYOUT_HASH ")\w+'),
        ("registry.c", r"(shaderloom_layout_hash\(void\) { return )[^;]+"),
        ("dispatch.c", r"(shaderloom_dispatch_layout_hash\(void\) { return )[^;]+"),
        ("spv/spirv.c", r"(shaderloom_module_layout_hash\(void\) { return )[^;]+"),
    ],
)
def test_generated_files_of_different_builds_are_refused(
    tmp_path: Path, built: Project, file: str, pattern: str
) -> None:
    generated = shutil.copytree(built.out, tmp_path / "generated")
    edit(generated / file, pattern, r"\g<1>0123" if file.endswith(".h") else r'\g<1>"0123"')
    ran = run(build(tmp_path / "build", EXAMPLE, generated))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "generated files of different builds" in ran.stderr
    assert f"0123 in {Path(file).name}" in ran.stderr


@pytest.mark.parametrize(
    "environment, says",
    [
        ({"VK_DRIVER_FILES": "/nonexistent"}, "no Vulkan driver"),
        ({"VALIDATE": "1", "VK_LAYER_PATH": "/nonexistent"}, "VK_LAYER_KHRONOS_validation"),
    ],
)
def test_what_is_not_installed_is_said_in_one_line(
    host: Path, environment: dict[str, str], says: str
) -> None:
    ran = run(host, **environment)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert re.fullmatch(rf"c_host: .*{says}.*\n", ran.stderr)


def test_cmake_says_when_there_is_nothing_built(tmp_path: Path) -> None:
    need("cmake")
    ran = run("cmake", "-S", EXAMPLE, "-B", tmp_path, f"-DSHADERLOOM_GENERATED={tmp_path}")
    assert ran.returncode != 0
    assert "shaderloom build" in ran.stderr
