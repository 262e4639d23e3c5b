"""Run many child processes, a bounded number at a time, and never leave one behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """A program to run: its arguments, working folder and whole environment (None: ours)."""

    argv: tuple[str, ...]
    cwd: Path | None = None
    env: dict[str, str] | None = None


@dataclass(frozen=True)
class Completed:
    """What a process left: exit status (negative: killed by that signal) and all it printed."""

    status: int
    stdout: str
    stderr: str


def run_all(commands: Iterable[Command], jobs: int) -> list[Completed]:
    """Run all commands, at most ``jobs`` at once, and return their results in order.

    On an interrupt every running child is killed at once, so that Ctrl-C does not wait
    for a batch to end. A program that cannot be started completes with status 127.
    """
    children = _Children()
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        try:
            futures = [pool.submit(children.run, command) for command in commands]
            # CPython does not wake a wait for an interrupt that came just before it began.
            while wait(futures, timeout=0.5).not_done:
                pass
            return [future.result() for future in futures]
        except BaseException:
            children.kill()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Children:
    """The running children, so that an interrupt can kill them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(self, command: Command) -> Completed:
        with self._lock:
            if self._stopped:
                return Completed(-1, "", "interrupted")
            try:
                child = subprocess.Popen(
                    command.argv,
                    cwd=command.cwd,
                    env=command.env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    start_new_session=True,  # so that what a child started dies with it
                )
            except OSError as error:
                return Completed(127, "", f"cannot run {command.argv[0]}: {error.strerror}")
            self._running.add(child)
        stdout, stderr = child.communicate()
        with self._lock:
            self._running.discard(child)
        return Completed(child.returncode, stdout, stderr)

    def kill(self) -> None:
        with self._lock:
            self._stopped = True
            for child in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
