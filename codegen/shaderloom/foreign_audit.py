"""What can be said of another project's modules: siblings that disagree, gaps, limits."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from shaderloom.audit_limits import limits
from shaderloom.errors import Position
from shaderloom.foreign import ForeignModule
from shaderloom.interface import Reflection
from shaderloom.lints import Finding

_MOST_NAMES = 3  # of modules, in a message


class _Item(NamedTuple):
    """A part of one module's interface: what it is called and what else it is."""

    module: str
    number: str
    name: str
    what: str


def audit_foreign(modules: Sequence[ForeignModule]) -> tuple[Finding, ...]:
    """Return all findings, sorted: of modules alone, of families, of identical modules.

    What is wrong with several modules of a family in the same way is one finding of the family.
    """
    found: list[Finding] = []
    alone: dict[tuple[str, str, str], list[ForeignModule]] = defaultdict(list)
    families: dict[str, list[ForeignModule]] = defaultdict(list)
    same: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        if module.declared is not None:
            families[module.family].append(module)
            same[module.digest].append(module.path)
        for lint, message in _alone(module):
            alone[module.family, lint, message].append(module)
    for (family, lint, message), members in alone.items():
        subject, told, where = members[0].path, message, Position(members[0].path)
        if len(members) > 1:
            subject, told = family, f"{message} (in {_names([m.name for m in members])})"
        found.append(Finding(subject, lint, told, position=where))
    for name, siblings in families.items():
        where = Position(siblings[0].path)
        for lint, message in _siblings(siblings):
            found.append(Finding(name, lint, message, position=where))
    for path, *others in same.values():
        if others:
            message = f"its module is also that of {_names(others)}"
            found.append(Finding(path, "SL021", message, position=Position(path)))
    return tuple(sorted(found))


def _alone(module: ForeignModule) -> Iterator[tuple[str, str]]:
    if module.declared is None or module.needs is None:
        yield module.lint, module.problem
        return
    for lint, message, _ in limits(module.declared, module.needs):
        yield lint, message
    for message in _gaps(module.declared):
        yield "SL206", message
    unnamed = [str(c.id) for c in module.declared.constants if not c.name]
    if unnamed:
        yield "SL207", f"specialization constants without a name: {', '.join(unnamed)}"


def _gaps(declared: Reflection) -> Iterator[str]:
    sets = sorted({binding.set for binding in declared.bindings})
    for number in sets:
        taken = {b.binding for b in declared.bindings if b.set == number}
        if missing := _missing({-1, *taken}):
            yield f"binding numbers of set {number} leave out {missing}"
    ids = {c.id for c in declared.constants}
    # A local size at 233 to 235 leaves the numbers before it to others.
    below = {number for number in declared.local_size_ids if number < max(ids, default=0)}
    if missing := _missing(ids | below):
        yield f"specialization constant IDs leave out {missing}"


def _missing(numbers: set[int]) -> str:
    """Return the numbers between those given: ``2, 5-7``."""
    ordered = sorted(numbers)
    gaps = [(a + 1, b - 1) for a, b in itertools.pairwise(ordered) if b > a + 1]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in gaps)


def _siblings(modules: Sequence[ForeignModule]) -> Iterator[tuple[str, str]]:
    bindings, constants, push = [], [], []
    for module in modules:
        if module.declared is None:
            continue
        for b in module.declared.bindings:
            number = f"{b.set}.{b.binding}" if b.set else str(b.binding)
            bindings.append(_Item(module.name, number, b.name, b.kind.value.replace("_", " ")))
        for c in module.declared.constants:
            constants.append(_Item(module.name, str(c.id), c.name, c.type))
        for f in module.declared.push_constants:
            push.append(_Item(module.name, f"at byte {f.offset}", f.name, f.type))
    for lint, label, items in (
        ("SL203", "binding", bindings),
        ("SL204", "specialization constant", constants),
        ("SL205", "push constant", push),
    ):
        for message in _disagreements(label, items):
            yield lint, message


def _disagreements(label: str, items: Iterable[_Item]) -> Iterator[str]:
    """Yield names that have several numbers, then numbers that stand for several things."""
    by_name: dict[str, list[_Item]] = defaultdict(list)
    by_number: dict[str, list[_Item]] = defaultdict(list)
    for item in items:
        by_number[item.number].append(item)
        if item.name:
            by_name[item.name].append(item)
    moved = set()
    for name, found in sorted(by_name.items()):
        # A name that one module uses twice says nothing about its siblings.
        repeated = len({item.module for item in found}) < len(found)
        if not repeated and len({item.number for item in found}) > 1:
            moved.add(name)
            yield f"{label} '{name}' is {_where((i.number, i.module) for i in found)}"
    for number, found in sorted(by_number.items(), key=lambda entry: entry[0].zfill(12)):
        kinds, names = {i.what for i in found}, {i.name for i in found if i.name}
        if len(kinds) > 1:
            yield f"{label} {number} is {_where((_article(i.what), i.module) for i in found)}"
        elif len(names) > 1 and not names & moved:
            named = ((f"'{i.name}'", i.module) for i in found if i.name)
            yield f"{label} {number} is {_where(named)}"


def _article(what: str) -> str:
    return f"an {what}" if what[0] in "aeio" else f"a {what}"  # an int, a uint


def _where(pairs: Iterable[tuple[str, str]]) -> str:
    """Return ``6 in a, b and 2 more; 7 in c``, the most frequent first."""
    places: dict[str, list[str]] = defaultdict(list)
    for what, module in pairs:
        places[what].append(module)
    ordered = sorted(places.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    return "; ".join(f"{what} in {_names(modules)}" for what, modules in ordered)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
