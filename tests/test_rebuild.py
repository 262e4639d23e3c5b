"""What a second build does again: nothing but what its content calls for."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from loom_support import Project, tiny_project
from shaderloom import compile as compiling
from shaderloom import freshness
from shaderloom.render import essence

LOGGED = """case "$1" in --version|--revision) exec "$real" "$1";; esac
echo "$@" >> "{log}"
exec "$real" "$@"
"""
TOOLS = ("glslc", "glslang", "spirv-opt", "spirv-val", "spirv-cross")
LIB, COPY = "templates/lib/gain.glsl.j2", "templates/ops/copy.comp.j2"


class Watched:
    """A project whose every child process is logged, with a cache of its own."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.log = project.folder.parent / "log"
        self.environment = {"SHADERLOOM_CACHE": str(project.folder.parent / "own-cache")}
        for name in TOOLS:
            variable = "SHADERLOOM_" + name.upper().replace("-", "_")
            script = project.program(name, LOGGED.format(log=self.log))
            self.environment[variable] = script

    def loom(self, *arguments: str) -> tuple[int, list[str]]:
        """Run the loom; return its exit code and the arguments of every child process."""
        self.log.write_text("")
        ran = self.project.loom(*arguments, **self.environment)
        return ran.code, self.log.read_text().splitlines()

    def compiled(self, *arguments: str) -> set[str]:
        """Run the loom, which must succeed; return the variants that a compiler was given."""
        code, commands = self.loom(*arguments)
        assert code == 0
        names = {word for line in commands for word in line.split() if word.endswith(".comp")}
        return {name.removesuffix(".comp") for name in names if not name.startswith("GL_")}


@pytest.fixture
def watched(tiny: Project) -> Watched:
    return Watched(tiny)


ALL = {"copy_float", "copy_half", "fill_float", "fill_half"}


def snapshot(project: Project) -> dict[str, tuple[int, int, bytes]]:
    """Every file with its inode and time of change."""
    return {
        path: ((stat := (project.out / path).stat()).st_ino, stat.st_mtime_ns, data)
        for path, data in project.files().items()
    }


def test_second_build_does_nothing(watched: Watched) -> None:
    assert watched.compiled("build") == ALL
    before = snapshot(watched.project)
    code, commands = watched.loom("build")
    assert (code, commands) == (0, [])
    assert snapshot(watched.project) == before


def test_second_build_says_so(tiny: Project) -> None:
    assert "4 modules" in tiny.build().out
    assert tiny.build().out == "generated: up to date\n"
    assert tiny.build("--quiet").out == ""


def test_lost_or_changed_output_is_made_again(watched: Watched) -> None:
    watched.compiled("build")
    before = watched.project.files()
    for path in before:
        (watched.project.out / path).write_bytes(b"x")
        watched.compiled("build")
        assert watched.project.files() == before, path
    shutil.rmtree(watched.project.out)
    assert watched.compiled("build") == set()  # all from the cache
    assert watched.project.files() == before


def test_left_over_output_is_removed(tiny: Project) -> None:
    """A variant that is gone takes its files along, even when it is put back by hand."""
    tiny.build()
    old = (tiny.out / "glsl/fill_half.comp").read_bytes()
    tiny.replace("variants.yaml", "[float, half]}\n    name: fill", "[float]}\n    name: fill")
    tiny.build()
    assert "glsl/fill_half.comp" not in tiny.files()
    assert "spv/fill_half.spv" not in tiny.files()
    (tiny.out / "glsl/fill_half.comp").write_bytes(old)
    (tiny.out / "notes.txt").write_text("mine")
    tiny.build()
    assert "glsl/fill_half.comp" not in tiny.files()
    assert "notes.txt" in tiny.files()
    assert "up to date" in tiny.build().out


def test_fault_1_a_failed_build_leaves_nothing_stale(watched: Watched, tmp_path: Path) -> None:
    watched.compiled("build")
    watched.project.replace(LIB, "* gain_factor", "* gain_fcator * 2.0")
    watched.project.replace("templates/ops/fill.comp.j2", "vec4(value)", "vec4(value + 1.0)")
    code, _ = watched.loom("build")
    assert code == 1
    watched.project.replace(LIB, "gain_fcator", "gain_factor")
    assert watched.compiled("build") == {"copy_float", "copy_half"}  # fill was good: it is kept
    fresh = tiny_project(tmp_path / "fresh")
    for path in (LIB, "templates/ops/fill.comp.j2"):
        shutil.copy(watched.project.folder / path, fresh.folder / path)
    fresh.build("--no-cache", **watched.environment)
    assert watched.project.files() == fresh.files()


def test_fault_2_another_compiler_version_compiles_again(watched: Watched) -> None:
    watched.compiled("build")
    with open(watched.environment["SHADERLOOM_GLSLC"], "a") as script:
        script.write("# another build of it, with the same version\n")
    assert watched.compiled("build") == ALL


def test_fault_2_another_optimizer_or_flag_compiles_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.compiled("build")
    with open(watched.environment["SHADERLOOM_SPIRV_OPT"], "a") as script:
        script.write("# another build\n")
    assert watched.compiled("build") == ALL
    monkeypatch.setattr(compiling, "OPTIMIZE", ("--strip-debug", "-Os"))
    shutil.rmtree(watched.project.out)
    assert watched.compiled("build") == ALL


def test_fault_2_another_target_compiles_again(watched: Watched) -> None:
    watched.compiled("build")
    watched.project.replace("variants.yaml", "  fill:\n", "  fill:\n    target_env: vulkan1.2\n")
    assert watched.compiled("build") == {"fill_float", "fill_half"}


def test_fault_2_another_choice_of_compiler_compiles_again(watched: Watched) -> None:
    watched.compiled("build")
    assert watched.compiled("build", "--compiler", "glslang") == ALL
    record = json.loads((watched.project.out / "spv/build.json").read_text())
    assert {shader["compiler"] for shader in record["shaders"].values()} == {"glslang"}


def test_fault_2_another_generator_runs_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.compiled("build")
    (watched.project.out / "registry.h").write_text("made by a tool that had a bug")
    stamp = watched.project.out / freshness.STAMP
    record = json.loads(stamp.read_text())
    record["outputs"]["registry.h"] = freshness._sha(b"made by a tool that had a bug")
    stamp.write_text(json.dumps(record))
    assert "up to date" in watched.project.loom("build", **watched.environment).out
    monkeypatch.setattr(freshness, "generator_identity", lambda: "the next version")
    watched.compiled("build")
    assert "SHADERLOOM_LAYOUT_HASH" in (watched.project.out / "registry.h").read_text()


def test_fault_3_times_do_not_matter(watched: Watched) -> None:
    watched.compiled("build")
    for path in watched.project.folder.rglob("*"):
        os.utime(path, (2_000_000_000, 2_000_000_000))
    code, commands = watched.loom("build")
    assert (code, commands) == (0, [])


def test_fault_3_the_spelling_of_a_path_does_not_matter(watched: Watched) -> None:
    watched.compiled("build")
    elsewhere = watched.project.folder.parent / "elsewhere"
    elsewhere.mkdir()
    for variable in [name for name in watched.environment if name != "SHADERLOOM_CACHE"]:
        copy = shutil.copy(watched.environment[variable], str(elsewhere))
        watched.environment[variable] = copy
    code, commands = watched.loom("build", "--spec", str(watched.project.folder / "variants.yaml"))
    assert (code, commands) == (0, [])


def test_fault_3_an_older_file_with_new_content_is_seen(watched: Watched) -> None:
    watched.compiled("build")
    watched.project.replace(COPY, "pos + shift", "pos - shift")
    os.utime(watched.project.folder / COPY, (1, 1))
    assert watched.compiled("build") == {"copy_float", "copy_half"}


def test_fault_4_what_was_read_counts(watched: Watched) -> None:
    """The block's header is named in the spec only, and unread.j2 under a condition."""
    project = watched.project
    project.write("templates/lib/unread.j2", '{% include "lib/unread.j2" %}')
    project.write("templates/stray.j2", "a")
    unreached = "{% if false %}{% include 'lib/no' ~ 'ne' %}{% endif %}"
    project.replace(COPY, "void main", f"{unreached}\nvoid main")
    project.replace(COPY, "void main", "{# {% include 'lib/unread.j2' %} #}\nvoid main")
    watched.compiled("build")
    inputs = json.loads((project.out / freshness.STAMP).read_text())["inputs"]
    read = ["lib/frame.comp.j2", "lib/gain.glsl.j2", "ops/copy.comp.j2", "ops/fill.comp.j2"]
    assert sorted(inputs) == [*(f"templates/{path}" for path in read), "variants.yaml"]
    project.write("templates/stray.j2", "b")
    assert watched.loom("build") == (0, [])
    project.replace(LIB, "y * g", "g * y")
    assert watched.compiled("build") == {"copy_float", "copy_half"}


def test_fault_5_a_comment_compiles_nothing(watched: Watched) -> None:
    watched.compiled("build")
    modules = {p: data for p, data in watched.project.files().items() if p.startswith("spv/")}
    watched.project.replace(LIB, "// Gain of one texel.", "// The gain of\n\n/* one\n texel */\n")
    watched.project.replace(LIB, "  return y;", "\treturn   y; // as it is")
    code, commands = watched.loom("build")
    assert (code, commands) == (0, [])
    after = watched.project.files()
    assert b"as it is" in after["glsl/copy_half.comp"]
    assert {p: after[p] for p in modules if p != freshness.STAMP} == {
        p: data for p, data in modules.items() if p != freshness.STAMP
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int a = 1; // b \\\nint c;\n", "int a = 1;\nint c;\n"),  # a continued comment
        ("#define A \\\n\nint b;\n", "#define A \\\nint b;\n"),  # a continued directive
        ("int a/**/b;\n", "int ab;\n"),
        ("a /* // */ b\n", "a\n"),
        ("// /*\nint a; // */\n", "\n"),
    ],
)
def test_fault_5_what_is_no_comment_compiles(one: str, other: str) -> None:
    assert essence(one) != essence(other)
