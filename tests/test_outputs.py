"""What is written, and what stays whole when writing goes wrong or two builds meet."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from loom_support import NO_TOOLS, REPOSITORY, Project, run_program, tiny_project, whole_project
from shaderloom import outputs
from shaderloom.errors import OutputError

CHILD = {**os.environ, "PYTHONPATH": str(REPOSITORY / "codegen")}
RUN = "import sys; from shaderloom.cli import main; sys.exit(main())"


def test_committed_files(tiny: Project) -> None:
    """What compilers decide stands in spv/ alone."""
    tiny.build()
    names = ("copy_float", "copy_half", "fill_float", "fill_half")
    committed = {path for path in tiny.files() if not path.startswith("spv/")}
    assert {f"glsl/{name}.comp" for name in names} < committed
    assert {path for path in tiny.files() if path.startswith("spv/")} == {
        *(f"spv/{name}.spv" for name in names),
        *("spv/spirv.c", "spv/build.json", "spv/.stamp.json"),
    }
    before = tiny.files()
    tiny.build("--compiler", "glslang")
    after = tiny.files()
    assert {p: before[p] for p in committed} == {p: after[p] for p in committed}


def test_check_needs_no_compiler(built: Project) -> None:
    ran = built.loom("check", **NO_TOOLS)
    assert (ran.code, ran.err) == (0, "")
    ran = built.loom("check")
    assert (ran.code, ran.err) == (0, "")


def test_check_names_every_hand_edited_file(built: Project, tmp_path: Path) -> None:
    copy = tmp_path / "generated"
    shutil.copytree(built.out, copy)
    files = built.files()
    committed = [path for path in files if not path.startswith("spv/")]
    assert len(committed) > 18
    for path in [*committed, "spv/build.json"]:
        data = files[path]
        (copy / path).write_bytes(data + b"\n")
        ran = built.loom("check", "--out", str(copy), **NO_TOOLS)
        if path.startswith("spv/"):
            assert ran.code == 0, path
        else:
            assert ran.code == 1, path
            assert ran.err.splitlines()[0].startswith(f"{copy / path}: error: stale"), path
        (copy / path).write_bytes(data)


def test_check_names_missing_and_orphan_files(built: Project, tmp_path: Path) -> None:
    copy = tmp_path / "generated"
    shutil.copytree(built.out, copy)
    (copy / "glsl/add_half.comp").rename(copy / "glsl/old.comp")
    (copy / "registry.c").unlink()
    ran = built.loom("check", "--out", str(copy))
    assert ran.code == 1
    found = [line.split(": ")[:3] for line in ran.err.splitlines()[:-1]]
    assert found == [
        [f"{copy}/glsl/add_half.comp", "error", "missing"],
        [f"{copy}/glsl/old.comp", "error", "orphan"],
        [f"{copy}/registry.c", "error", "missing"],
    ]
    assert sorted(path.name for path in copy.iterdir()) == sorted(
        path.name for path in built.out.iterdir() if path.name != "registry.c"
    )  # check writes nothing


def test_fault_6_two_builds_at_once(tiny: Project, tmp_path: Path) -> None:
    """One cache and one output folder: both succeed, and the output is that of one build."""
    environment = {"SHADERLOOM_CACHE": str(tmp_path / "shared cache")}
    started = [tiny.start("build", **environment) for _ in range(3)]
    for process in started:
        _, err = process.communicate()
        assert (process.returncode, err) == (0, "")
    alone = tiny_project(tmp_path / "alone")
    alone.build("--no-cache")
    assert tiny.files() == alone.files()
    assert tiny.build(**environment).out == "generated: up to date\n"


def test_fault_6_a_killed_build_leaves_no_lock(tiny: Project) -> None:
    fifo = tiny.folder.parent / "fifo"
    os.mkfifo(fifo)
    script = (
        'case "$1" in --version) exec "$real" "$1";; esac\n'
        f'echo $$ > "{fifo}"\nexec tail -f /dev/null\n'
    )
    environment = {
        "SHADERLOOM_GLSLC": tiny.program("glslc", script),
        "SHADERLOOM_CACHE": str(tiny.folder.parent / "cache"),
    }
    process = tiny.start("build", "--jobs", "1", **environment)
    child = int(fifo.read_text())
    process.kill()
    process.communicate()
    os.kill(child, signal.SIGKILL)
    assert not tiny.out.exists()
    del environment["SHADERLOOM_GLSLC"]
    tiny.build(**environment)


def test_fault_6_a_build_killed_while_writing_is_repaired(
    tiny: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead after the third rename: the next build sees it and puts everything right."""
    tiny.build()
    whole = tiny.files()
    tiny.replace("variants.yaml", "{times: 0, plus: 1}", "{times: 0, plus: 2}")
    done: list[str] = []
    replace = os.replace

    class Killed(BaseException):
        pass

    def dies(source: Path, target: Path) -> None:
        if ".shaderloom-staging-" in str(source):
            if len(done) == 3:
                raise Killed
            done.append(str(target))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr("shaderloom.outputs.os.replace", dies)
        patch.setattr("shaderloom.outputs.shutil.rmtree", lambda *_, **__: None)
        with pytest.raises(Killed):
            tiny.loom("build")
    assert any(".shaderloom-staging-" in path for path in tiny.files())
    tiny.replace("variants.yaml", "{times: 0, plus: 2}", "{times: 0, plus: 1}")
    assert "up to date" not in tiny.build().out
    assert tiny.loom("check").code == 0
    left = {p: data for p, data in tiny.files().items() if ".shaderloom-staging-" not in p}
    assert left == whole
    assert "/generated/spv/" in (REPOSITORY / ".gitignore").read_text().splitlines()


def test_fault_7_a_full_disk_leaves_the_old_output(tiny: Project) -> None:
    """A limit on the size of files stops the write as a full disk would: in the middle."""
    tiny.build()
    before = tiny.files()
    tiny.replace("variants.yaml", "{times: 0, plus: 1}", "{times: 0, plus: 2}")
    limit = len(before["registry.h"]) // 512 - 1
    command = ["sh", "-c", f'ulimit -f {limit}; exec "$0" "$@"', sys.executable, "-c", RUN, "build"]
    ran = run_program(command, tiny.folder, CHILD)
    assert ran.returncode == 1
    assert re.fullmatch(r"generated/\S+: error: cannot write: File too large\n", ran.stderr)
    assert tiny.files() == before


@pytest.mark.parametrize("read_only", ["spv", "glsl"])
def test_fault_7_a_read_only_output_is_said_and_left(tiny: Project, read_only: str) -> None:
    """Root may write anywhere, so the child gives that privilege up; it keeps all others."""
    tiny.build()
    before = tiny.files()
    tiny.replace("variants.yaml", "{times: 0, plus: 1}", "{times: 0, plus: 2}")
    unprivileged = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    command = [*(unprivileged if os.geteuid() == 0 else []), sys.executable, "-c", RUN, "build"]
    (tiny.out / read_only).chmod(0o555)
    try:
        ran = run_program(command, tiny.folder, CHILD)
    finally:
        (tiny.out / read_only).chmod(0o755)
    assert ran.returncode == 1
    assert re.match(rf"generated/{read_only}\S*: error: cannot write: ", ran.stderr), ran.stderr
    assert tiny.files() == before


def test_fault_7_the_last_folder_is_tried_before_the_first_file(tmp_path: Path) -> None:
    """``z`` cannot be written; ``a``, which can, must still be the old one."""
    out = tmp_path / "out"
    outputs.write(out, "out", {"a": b"old", "z/b": b"old"})
    (out / "z/b").unlink()
    (out / "z/b").mkdir()
    with pytest.raises(OutputError, match="out/z/b: error: cannot write: it is a folder"):
        outputs.write(out, "out", {"a": b"new", "z/b": b"new"})
    assert (out / "a").read_bytes() == b"old"
    assert not [path for path in out.rglob("*") if "staging" in path.name]


def test_fault_7_no_room_in_the_temporary_folder(
    tiny: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/shaderloom-x/copy_half.comp")

    monkeypatch.setattr("shaderloom.compile._Stages.front_end", full)
    ran = tiny.loom("build", "--no-cache")
    assert ran.code == 1
    assert ran.err == "/tmp/shaderloom-x/copy_half.comp: error: No space left on device\n"


def test_fault_7_a_cache_that_cannot_be_written_is_no_error(tiny: Project) -> None:
    (tiny.folder / "file").touch()
    assert tiny.build("--cache", "file/cache").err == ""


def test_a_damaged_cache_entry_is_made_again(tiny: Project, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    tiny.build("--cache", str(cache))
    before = tiny.files()
    for entry in [path for path in cache.rglob("*") if path.is_file()]:
        entry.write_bytes(entry.read_bytes()[:-1])
    shutil.rmtree(tiny.out)
    tiny.build("--cache", str(cache))
    assert tiny.files() == before


def test_fault_26_same_bytes_whatever_the_order(tmp_path: Path) -> None:
    """Folders filled in opposite orders, other hash seeds, one job and many."""
    results = []
    for number, (reverse, jobs) in enumerate([(False, "1"), (True, "7")]):
        project = Project(tmp_path / f"project {number}")
        original = whole_project(tmp_path / f"original {number}").folder
        files = [path for path in original.rglob("*") if path.is_file()]
        for path in sorted(files, reverse=reverse):
            target = project.folder / path.relative_to(original)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        process = project.start(
            "build", "--no-cache", "--jobs", jobs, PYTHONHASHSEED=str(number + 1)
        )
        _, err = process.communicate()
        assert (process.returncode, err) == (0, "")
        results.append(project.files())
    assert len(results[0]) > 40
    assert results[0] == results[1]


def test_only_writes_the_chosen_modules(tiny: Project) -> None:
    tiny.build("--only", "fill_*")
    modules = [path for path in tiny.files() if path.endswith(".spv")]
    assert modules == ["spv/fill_float.spv", "spv/fill_half.spv"]
    assert tiny.loom("check").code == 0
    assert "up to date" not in tiny.build().out  # a part is no build
    assert json.loads((tiny.out / "spv/build.json").read_text())["shaders"]["copy_half"]["size"]
