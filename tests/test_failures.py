"""Compilers and tools that fail, lie, crash or hang: said, bounded, and never a success."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from loom_support import Project

VERSION = 'case "$1" in --version|--revision) exec "$real" "$1";; esac\n'
COPY, FILL = "templates/ops/copy.comp.j2", "templates/ops/fill.comp.j2"
ALL = ("copy_float", "copy_half", "fill_float", "fill_half")


def misbehaving(project: Project, name: str, script: str) -> dict[str, str]:
    """Return the environment in which ``name`` is a script; nothing comes from a cache."""
    variable = "SHADERLOOM_" + name.upper().replace("-", "_")
    cache = str(project.folder.parent / f"cache of {name}")
    return {variable: project.program(name, VERSION + script), "SHADERLOOM_CACHE": cache}


def test_fault_8_every_failing_variant_is_listed_and_nothing_written(tiny: Project) -> None:
    tiny.replace(COPY, "apply_gain(y, pos)", "apply_gain(y)")
    tiny.replace(FILL, "vec4(value)", "vec4(value, 1)")
    ran = tiny.loom("build")
    assert ran.code == 1
    assert ran.out == ""
    assert all(name in ran.err for name in ALL)
    assert not tiny.out.exists()


def test_fault_8_a_failure_leaves_the_old_output(tiny: Project) -> None:
    tiny.build()
    before = tiny.files()
    tiny.replace(COPY, "apply_gain(y, pos)", "apply_gain(y)")
    assert tiny.loom("build").code == 1
    assert tiny.files() == before


def test_fault_8_keep_going_writes_the_rest_and_still_fails(tiny: Project) -> None:
    tiny.replace(COPY, "apply_gain(y, pos)", "apply_gain(y)")
    ran = tiny.loom("build", "--keep-going")
    assert ran.code == 1
    assert "copy_float, copy_half" in ran.err
    files = tiny.files()
    assert "spv/fill_half.spv" in files
    assert "spv/copy_half.spv" not in files
    record = json.loads(files["spv/build.json"])["shaders"]
    assert record["copy_half"]["size"] == 0
    assert "no matching overloaded function" in record["copy_half"]["missing"]
    assert tiny.loom("build").code == 1  # and it is not up to date now


@pytest.mark.parametrize("compiler", ["glslc", "glslang"])
@pytest.mark.parametrize("status", [1, 127])
def test_fault_8_a_compiler_that_fails_without_a_word(
    tiny: Project, compiler: str, status: int
) -> None:
    """Its module is complete, yet its exit status says that something is wrong."""
    script = f'"$real" "$@" >/dev/null || exit\nexit {status}\n'
    environment = misbehaving(tiny, compiler, script)
    chosen = {"glslc": "shaderc"}.get(compiler, compiler)
    ran = tiny.loom("build", "--compiler", chosen, **environment)
    assert ran.code == 1
    assert f"{COPY}: error: {compiler} exited {status} (variants copy_float, copy_half)" in ran.err
    assert f"{FILL}: error: {compiler} exited {status} (variants fill_float, fill_half)" in ran.err
    assert not tiny.out.exists()


def test_fault_8_a_compiler_that_crashes(tiny: Project) -> None:
    ran = tiny.loom("build", **misbehaving(tiny, "glslc", '"$real" "$@"; kill -SEGV $$\n'))
    assert ran.code == 1
    assert "glslc was killed by signal 11 (variants copy_float, copy_half)" in ran.err
    assert not tiny.out.exists()


EACH = 'for file in "$@"; do case "$file" in *.comp) {} ;; esac; done\n'


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        (EACH.format(': > "$file.spv"'), "left a bad module: "),
        (EACH.format('echo "not SPIR-V at all" > "$file.spv"'), "left a bad module: "),
        (
            '"$real" "$@" || exit\n'
            + EACH.format('head -c 400 "$file.spv" > cut; cp cut "$file.spv"'),
            "left a bad module: ",
        ),
        (
            '"$real" "$@" || exit\n'
            + EACH.format('head -c 402 "$file.spv" > cut; cp cut "$file.spv"'),
            "left a bad module: ",
        ),
        ("exit 0\n", "left no module"),
    ],
    ids=["empty", "garbage", "truncated", "odd length", "nothing"],
)
def test_fault_9_a_bad_module_is_no_success(tiny: Project, script: str, complaint: str) -> None:
    ran = tiny.loom("build", **misbehaving(tiny, "glslc", script))
    assert ran.code == 1
    assert f"{COPY}: error: glslc exited 0 and {complaint}" in ran.err
    assert all(name in ran.err for name in ALL)
    assert not tiny.out.exists()


def test_fault_9_a_module_of_something_else_fails_the_audit(tiny: Project) -> None:
    """A compiler that lies: the interface is not the one that was asked for."""
    script = (
        'case "$*" in *copy*) ;; *) exec "$real" "$@";; esac\n'
        "for file in copy_*.comp; do cp fill_half.comp $file; done\n"
        'exec "$real" "$@"\n'
    )
    ran = tiny.loom("build", **misbehaving(tiny, "glslc", script))
    assert ran.code == 1
    assert "copy_half: error: binding 1 (t_in) is planned but not declared" in ran.err
    assert not tiny.out.exists()


def test_fault_9_an_invalid_module_is_refused(tiny: Project) -> None:
    """spirv-val has the last word, whatever the compiler's exit status says."""
    environment = misbehaving(tiny, "spirv-val", 'echo "error: line 7: bad"; exit 1\n')
    ran = tiny.loom("build", **environment)
    assert ran.code == 1
    assert "spirv-val exited 1: error: line 7: bad (variants copy_float, copy_half)" in ran.err
    assert not tiny.out.exists()


NOISE = """i=0
while [ $i -lt 3000 ]; do echo 'a line of noise that fills a pipe' >&2; i=$((i+1)); done
"""


def test_fault_10_many_failing_children_are_bounded(tiny: Project) -> None:
    """Forty children fail with more output each than a pipe holds, sixteen at a time."""
    values = ", ".join(f"v{i}" for i in range(20))
    tiny.replace("variants.yaml", "name: fill_{dtype}", "name: fill_{dtype}_{n}")
    tiny.replace(
        "variants.yaml",
        "[float, half]}\n    name: fill",
        f"[float, half], n: [{values}]}}\n    name: fill",
    )
    environment = misbehaving(tiny, "glslang", NOISE + "exit 3\n")
    ran = tiny.loom("build", "--compiler", "glslang", "--jobs", "16", **environment)
    assert ran.code == 1
    assert ran.err.count("a line of noise") == 2  # one diagnostic a template
    assert all(f"fill_{dtype}_v{i}" in ran.err for dtype in ("float", "half") for i in range(20))


def test_fault_10_interrupt_kills_the_children(tiny: Project) -> None:
    """The child has a child of its own, which holds the pipe; both are gone, nothing is written."""
    fifo = tiny.folder.parent / "fifo"
    os.mkfifo(fifo)
    script = f'exec 9> "{fifo}"\necho started >&9\ntail -f /dev/null &\nwait\n'
    process = tiny.start("build", **misbehaving(tiny, "glslc", script))
    with open(fifo) as started:
        assert started.readline() == "started\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert started.read() in ("", "started\n")  # to the end: no writer is left
    assert (process.returncode, out, err) == (130, "", "interrupted\n")
    assert not tiny.out.exists()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'out of luck' >&2; exit 1\n", "spirv-opt exited 1: out of luck"),
        ("exit 0\n", "spirv-opt exited 0 and left no valid module"),
        (
            'while [ "$1" != -o ]; do shift; done; echo no > "$2"\n',
            "spirv-opt exited 0 and left no valid module",
        ),
        ('"$real" "$@"; exit 5\n', "spirv-opt exited 5"),
    ],
    ids=["fails", "no file", "garbage", "fails after writing"],
)
def test_fault_11_unoptimised_is_said_and_recorded(tiny: Project, script: str, reason: str) -> None:
    environment = misbehaving(tiny, "spirv-opt", script)
    ran = tiny.build(**environment)
    assert f"copy_half: not optimised: {reason}\n" in ran.err
    record = json.loads((tiny.out / "spv/build.json").read_text())["shaders"]["copy_half"]
    assert (record["optimized"], record["unoptimized_because"]) == (False, reason)
    assert (tiny.out / "spv/copy_half.spv").stat().st_size == record["size"] > 0


def test_fault_11_a_passing_weakness_is_not_remembered(tiny: Project) -> None:
    """The optimiser was killed once; the next build, with the same cache, optimises."""
    mark = tiny.folder.parent / "killed once"
    script = f'[ -e "{mark}" ] || kill -KILL $$\nexec "$real" "$@"\n'
    environment = misbehaving(tiny, "spirv-opt", script)
    assert "was killed by signal 9" in tiny.build(**environment).err
    mark.touch()
    (tiny.out / "spv/spirv.c").unlink()
    assert tiny.build(**environment).err == ""
    record = json.loads((tiny.out / "spv/build.json").read_text())["shaders"]
    assert all(shader["optimized"] for shader in record.values())


OLD = (
    EACH.format('grep -q GL_KHR_shader_subgroup "$file" && exit 1')
    + 'echo "$@" >> "{log}"\nexec "$real" "$@"\n'
)


def test_fault_12_a_missing_extension_lists_every_variant(tiny: Project, tmp_path: Path) -> None:
    log = tmp_path / "log"
    requires = "    requires: [GL_KHR_shader_subgroup_basic, GL_KHR_shader_subgroup_arithmetic]\n"
    tiny.replace("variants.yaml", "  fill:\n", "  fill:\n" + requires)
    environment = misbehaving(tiny, "glslc", OLD.format(log=log))
    environment["SHADERLOOM_GLSLANG"] = "/nowhere/glslang"
    ran = tiny.build(**environment)
    lacks = "glslc lacks GL_KHR_shader_subgroup_arithmetic, GL_KHR_shader_subgroup_basic"
    assert ran.err == "".join(f"fill_{dtype}: skipped: {lacks}\n" for dtype in ("float", "half"))
    assert "fill_" not in log.read_text()  # asked once for the extension, never compiled
    files = tiny.files()
    assert json.loads(files["spv/build.json"])["shaders"]["fill_half"] == {
        "missing": lacks,
        "size": 0,
    }
    assert f'{{NULL, 0, "{lacks}"}}'.encode() in files["spv/spirv.c"]
    assert b"fill_half" in files["registry.c"]  # it is planned, whatever the compiler knows

    tiny.replace(COPY, "apply_gain(y, pos)", "apply_gain(y)")  # and beside an error
    ran = tiny.loom("build", **environment)
    assert ran.code == 1
    assert f"fill_half: error: skipped: {lacks}\n" in ran.err
    assert "no matching overloaded function found" in ran.err


def test_fault_12_the_next_compiler_takes_over(tiny: Project) -> None:
    requires = "    requires: [GL_KHR_shader_subgroup_basic]\n"
    tiny.replace("variants.yaml", "  fill:\n", "  fill:\n" + requires)
    tiny.build(**misbehaving(tiny, "glslc", OLD.format(log="/dev/null")))
    shaders = json.loads((tiny.out / "spv/build.json").read_text())["shaders"]
    assert {name: shader["compiler"] for name, shader in shaders.items()} == {
        "copy_float": "glslc",
        "copy_half": "glslc",
        "fill_float": "glslang",
        "fill_half": "glslang",
    }


def test_fault_12_a_killed_compiler_is_not_remembered_as_old(tiny: Project) -> None:
    mark = tiny.folder.parent / "killed once"
    script = f'case "$*" in *GL_*) [ -e "{mark}" ] || kill -KILL $$;; esac\nexec "$real" "$@"\n'
    requires = "    requires: [GL_KHR_shader_subgroup_basic]\n"
    tiny.replace("variants.yaml", "  fill:\n", "  fill:\n" + requires)
    environment = misbehaving(tiny, "glslc", script)
    assert "skipped" in tiny.build("--compiler", "shaderc", **environment).err
    mark.touch()
    tiny.replace(FILL, "vec4(value)", "vec4(value + 1.0)")
    assert "skipped" not in tiny.build("--compiler", "shaderc", **environment).err


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("templates/lib/gain.glsl.j2", 1),
        ("templates/lib/gain.glsl.j2", 3),
        ("templates/lib/gain.glsl.j2", 9),
        (COPY, 3),
        (COPY, 5),
        (COPY, 8),
        ("templates/lib/frame.comp.j2", 5),
        ("templates/lib/frame.comp.j2", 8),
    ],
)
def test_fault_13_errors_point_at_the_template(tiny: Project, template: str, line: int) -> None:
    """Whatever includes, loops and blocks lie between a template's line and the GLSL's."""
    path = tiny.folder / template
    lines = path.read_text().split("\n")
    lines.insert(line - 1, "#error here")
    path.write_text("\n".join(lines))
    ran = tiny.loom("build")
    assert ran.code == 1
    names = [name for name in ALL if "frame" in template or name.startswith("copy")]
    variants = f"(variants {', '.join(names)})"
    assert ran.err == f"{template}:{line}: error: '#error' : here {variants}\n"
