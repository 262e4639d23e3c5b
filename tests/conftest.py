"""Fixtures of the loom's tests: projects to build, and a cache of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_support import Project, tiny_project, whole_project


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite what the golden cases expect"
    )


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's cache out of it; the tests of a session share one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHADERLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def tiny(tmp_path: Path) -> Project:
    """A project of two small families that a test may change."""
    return tiny_project(tmp_path / "project")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """This repository's own project, built once; tests only read it."""
    project = whole_project(tmp_path_factory.mktemp("built") / "project")
    project.build()
    return project


@pytest.fixture(scope="module")
def generated(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The generated data that the runtime takes: of ``built``, as a clone has none yet.

    $SHADERLOOM_GENERATED names data built elsewhere, for a machine without compilers.
    """
    if chosen := os.environ.get("SHADERLOOM_GENERATED"):
        yield Path(chosen)
        return
    built: Project = request.getfixturevalue("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHADERLOOM_GENERATED", str(built.out))
        yield built.out
