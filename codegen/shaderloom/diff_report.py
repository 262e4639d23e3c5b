"""Changes as people say them: text for a terminal, Markdown for a pull request, JSON for tools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from shaderloom.diff import Change, exit_code
from shaderloom.diff_manifest import Manifest
from shaderloom.manifest import to_json

REPORT_VERSION = 1
ENUMS = "enums"  # the heading of what belongs to no family
_VERDICTS = {0: "same", 3: "compatible", 4: "breaking"}
_PLURALS = {"enum value": "enum values", "push constant": "push constants"}


@dataclass(frozen=True)
class Line:
    """What a reader is told about one change, or about a range of them."""

    breaking: bool
    kind: str
    text: str
    why: str


def to_text(old: Manifest, new: Manifest, changes: Sequence[Change]) -> str:
    """Return the report for a terminal; it ends with a line of the verdict."""
    result = ""
    for heading, lines in _sections(changes):
        result += f"{heading}\n"
        for line in lines:
            verdict = "breaking" if line.breaking else "compatible"
            why = f"  ({line.why})" if line.why else ""
            result += f"  {verdict:10}  {line.kind:8} {line.text}{why}\n"
        result += "\n"
    return f"{result}{old.label} -> {new.label}: {_summary(changes)}\n"


def to_markdown(old: Manifest, new: Manifest, changes: Sequence[Change]) -> str:
    """Return the report as a comment on a pull request: the verdict first, a table a family."""
    verdict = _VERDICTS[exit_code(changes)]
    result = f"## Shader interfaces: {verdict}\n\n"
    result += f"`{old.label}` to `{new.label}`: {_summary(changes)}.\n"
    for heading, lines in _sections(changes):
        shown = heading if heading == ENUMS else f"`{heading}`"
        result += f"\n### {shown}\n\n| verdict | change | what | why |\n|---|---|---|---|\n"
        for line in lines:
            strong = "**breaking**" if line.breaking else "compatible"
            result += f"| {strong} | {line.kind} | {_cell(line.text)} | {_cell(line.why)} |\n"
    return result


def to_data(old: Manifest, new: Manifest, changes: Sequence[Change]) -> str:
    """Return the report as JSON: one entry a change, nothing summarised, sorted keys."""
    data: dict[str, Any] = {
        "schema": REPORT_VERSION,
        "verdict": _VERDICTS[exit_code(changes)],
        "old": {"name": old.label, "layout_hash": old.layout_hash},
        "new": {"name": new.label, "layout_hash": new.layout_hash},
        "changes": [{**vars(change), "variants": list(change.variants)} for change in changes],
    }
    return to_json(data).decode()


FORMATS = {"text": to_text, "markdown": to_markdown, "json": to_data}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _summary(changes: Sequence[Change]) -> str:
    if not changes:
        return "same"
    breaking = sum(change.breaking for change in changes)
    families = {change.family for change in changes if change.family}
    counts = f"{breaking} breaking, {len(changes) - breaking} compatible"
    where = f"{len(families)} famil{'y' if len(families) == 1 else 'ies'}"
    return f"{_VERDICTS[exit_code(changes)]} ({counts} changes in {where})"


def _sections(changes: Sequence[Change]) -> Iterable[tuple[str, list[Line]]]:
    for family, group in groupby(changes, key=lambda change: change.family):
        yield family or ENUMS, _lines(list(group))


def _lines(changes: Sequence[Change]) -> list[Line]:
    lines = []
    for run in _runs(changes):
        if len(run) > 1:
            lines.append(_range(run))
            # The range tells where they went; the new names are told one by one.
            lines += [_renamed(change) for change in run if change.kind == "renamed"]
        else:
            lines.append(_single(run[0]))
    return lines


def _runs(changes: Sequence[Change]) -> list[list[Change]]:
    """Split into runs of neighbours that one sentence can tell: ``4-8 -> 6-10``."""
    runs: list[list[Change]] = []
    for change in changes:
        if runs and _continues(runs[-1][-1], change):
            runs[-1].append(change)
        else:
            runs.append([change])
    return runs


def _continues(last: Change, change: Change) -> bool:
    alike = (last.part, last.within, last.breaking, last.variants) == (
        *(change.part, change.within, change.breaking, change.variants),
    )
    if not alike:
        return False
    if last.part in ("variant", "feature", "compiler extension"):
        return last.kind == change.kind
    if _moves(last) and _moves(change):
        # Constants of one type: "has_bias 7 -> 6" and "8-9 -> 7-8" are two facts to a reader.
        same = last.type == change.type or change.part != "constant"
        return same and all(
            _follows(change, getattr(last, side), getattr(change, side))
            for side in ("before", "after")
        )
    if last.kind == change.kind == "added":
        return last.why == change.why and last.block == change.block and last.attribute == "number"
    return last.kind == change.kind == "removed" and last.attribute == "number"


def _moves(change: Change) -> bool:
    return change.kind in ("moved", "renamed") and change.before != change.after


def _follows(change: Change, last: Any, number: Any) -> bool:
    offsets = change.part in ("field", "push constant")
    return bool(0 < number - last <= 16) if offsets else bool(number == last + 1)


def _range(run: Sequence[Change]) -> Line:
    first = run[0]
    names = ", ".join(change.name for change in run)
    if first.attribute != "number":
        text = f"{_plural(first.part)} {names}"
    elif _moves(first):
        before = _numbers([change.before for change in run])
        after = _numbers([change.after for change in run])
        text = f"{_plural(first.part)}{_where(first)} {before} -> {after}: {names}"
    else:
        numbers = _numbers([c.after if c.kind == "added" else c.before for c in run])
        text = f"{_plural(first.part)}{_where(first)} {numbers}: {names}"
    kind = "moved" if _moves(first) else first.kind
    return Line(first.breaking, kind, text + _owner(first) + _variants(first), first.why)


def _single(change: Change) -> Line:
    if change.kind == "renamed":
        return _renamed(change, moved=True)
    text = f"{change.part} {change.name}{_where(change)}"
    if change.part == "family":
        text = f"family of {len(change.variants)} variants"
        return Line(change.breaking, change.kind, text, change.why)
    if change.part == "shader":
        text = f"{change.name} {change.before} -> {change.after}"
    elif change.kind == "moved":
        text += f" {change.before} -> {change.after}"
    elif change.kind in ("added", "removed"):
        number = change.after if change.kind == "added" else change.before
        text += f" {number}" if change.attribute == "number" else ""
        text += _owner(change)
    elif change.kind == "resized":
        what = change.part if change.part == "push constants" else f"{change.part} {change.name}"
        text = f"{what} {change.before} -> {change.after} bytes"
    else:
        text = f"{change.part} {change.name}"
        text += f" of {change.within}" if change.within else ""
        text += f": {change.attribute} {_fact(change.before)} -> {_fact(change.after)}"
    return Line(change.breaking, change.kind, text + _variants(change), change.why)


def _renamed(change: Change, moved: bool = False) -> Line:
    text = f"{change.part} {change.old_name} -> {change.name}"
    text += f" of {change.within}" if change.within else ""
    if moved and change.before != change.after:
        text += f", {change.before} -> {change.after}"
    return Line(change.breaking, "renamed", text + _variants(change), change.why)


def _where(change: Change) -> str:
    at = " at" if change.part in ("field", "push constant") else ""  # a byte
    return (f" of {change.within}" if change.within else "") + at


def _owner(change: Change) -> str:
    return f" of block {change.block}" if change.block and change.kind == "added" else ""


def _variants(change: Change) -> str:
    return f" in {', '.join(change.variants)}" if change.variants else ""


def _fact(value: Any) -> str:
    return "none" if value in ("", None) else str(value)


def _plural(part: str) -> str:
    return _PLURALS.get(part, f"{part}s")


def _numbers(numbers: Sequence[Any]) -> str:
    """Return ``4-8`` for consecutive numbers, else ``16, 20, 24``."""
    first, last = numbers[0], numbers[-1]
    if list(numbers) == list(range(first, last + 1)):
        return f"{first}-{last}"
    return ", ".join(str(number) for number in numbers)
