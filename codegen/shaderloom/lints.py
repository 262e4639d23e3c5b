"""The lints: every rule the tool checks, with its ID, its level and what it found.

``docs/lints.md`` has a section for each ID. SL0xx are about a project, SL1xx about the committed
files, SL2xx about modules of other projects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from shaderloom.errors import Diagnostic, Position
from shaderloom.outputs import PROBLEMS, Difference
from shaderloom.source import Source

ERROR, WARNING, OFF = "error", "warning", "off"
NOWHERE = Position("")


@dataclass(frozen=True)
class Lint:
    """A rule; the level of a ``fixed`` one cannot be changed by a spec."""

    id: str
    name: str
    level: str  # error, warning or off, where the spec says nothing else
    summary: str
    fixed: bool = False


_ALL = (
    Lint("SL000", "mistake", ERROR, "the spec, a template or a shader is wrong", fixed=True),
    Lint("SL001", "plan-mismatch", ERROR, "a module declares another interface than planned"),
    Lint("SL002", "undeclared-use", ERROR, "a shipped module uses what it does not declare"),
    Lint("SL003", "witness-disagreement", ERROR, "two readers see different interfaces"),
    Lint("SL004", "dead-binding", ERROR, "no variant of the family uses a binding"),
    Lint("SL005", "dead-constant", ERROR, "no variant uses a specialization constant"),
    Lint("SL006", "dead-uniform-member", ERROR, "no variant uses a member of a uniform block"),
    Lint("SL007", "dead-push-constant", ERROR, "no variant uses a push constant"),
    Lint("SL008", "contiguous-constants", ERROR, "specialization constant IDs have gaps"),
    Lint("SL009", "block-whole", ERROR, "a block is split, nested or out of order"),
    Lint("SL010", "absent-operand", ERROR, "nothing fit stands in for an absent operand",
         fixed=True),
    Lint("SL011", "push-constant-size", ERROR, "push constants take more than 128 bytes"),
    Lint("SL012", "push-constant-layout", WARNING, "push constants are misaligned, or have holes "
         "that no pad declares"),
    Lint("SL013", "uniform-size", ERROR, "a uniform block takes more than 16 KiB"),
    Lint("SL014", "descriptor-count", ERROR, "a shader has more descriptors of a type than every "
         "device takes"),
    Lint("SL015", "missing-requirement", ERROR, "a module needs what 'requires' does not name"),
    Lint("SL016", "needless-requirement", WARNING, "'requires' names what no variant needs"),
    Lint("SL017", "local-size-ids", ERROR, "the local size is not at constants 0, 1 and 2"),
    Lint("SL018", "shared-memory", ERROR, "shared memory takes more than 16 KiB and the spec does "
         "not say so"),
    Lint("SL019", "missing-variant", ERROR, "a route can ask for a variant that does not exist",
         fixed=True),
    Lint("SL020", "unreachable-variant", WARNING, "no route can reach a variant"),
    Lint("SL021", "identical-modules", WARNING, "two variants have identical modules"),
    Lint("SL022", "matrix-shape", ERROR, "cooperative matrices are not of the planned shape"),
    Lint("SL101", "missing-file", ERROR, "a committed file is missing", fixed=True),
    Lint("SL102", "stale-file", ERROR, "a committed file is not what the spec makes", fixed=True),
    Lint("SL103", "orphan-file", ERROR, "nothing makes a committed file", fixed=True),
    Lint("SL201", "unreadable-module", ERROR, "a file is no SPIR-V, or damaged", fixed=True),
    Lint("SL202", "refused-module", WARNING, "a module is not described", fixed=True),
    Lint("SL203", "sibling-bindings", WARNING, "siblings have different bindings", fixed=True),
    Lint("SL204", "sibling-constants", WARNING, "siblings have different specialization constants",
         fixed=True),
    Lint("SL205", "sibling-push-constants", WARNING, "siblings have different push constants",
         fixed=True),
    Lint("SL206", "gap", WARNING, "binding or constant numbers have gaps", fixed=True),
    Lint("SL207", "unnamed-constant", WARNING, "a specialization constant has no name", fixed=True),
)  # fmt: skip
LINTS = {lint.id: lint for lint in _ALL}


@dataclass(frozen=True, order=True)
class Finding:
    """A broken rule; ``subject`` is a variant, a family for what concerns all of it, or a file.

    ``family``, ``owner`` (an interface block) and ``about`` (a name that the spec declares) tell
    ``judge`` whose level counts and where in the spec the cause stands.
    """

    subject: str
    lint: str
    message: str
    family: str = ""
    owner: str = ""
    about: str = ""
    level: str = ""  # "" until judged: the lint's own
    position: Position = NOWHERE

    @property
    def severity(self) -> str:
        return self.level or LINTS[self.lint].level

    @property
    def rule(self) -> str:
        """The ID and the name: ``SL007 dead-push-constant``."""
        return f"{self.lint} {LINTS[self.lint].name}"

    def __str__(self) -> str:
        return f"{self.subject}: {self.severity}: {self.message} [{self.rule}]"


@dataclass(frozen=True)
class Override:
    """The level that a spec gives a lint, and why."""

    level: str
    reason: str


@dataclass(frozen=True)
class Levels:
    """What a spec says of levels; a family's word counts before that of the whole spec."""

    whole: Mapping[str, Override]
    families: Mapping[str, Mapping[str, Override]]

    def level(self, lint: str, family: str) -> str:
        """Return the level of a lint for a family, "" for what concerns no single one."""
        override = self.families.get(family, {}).get(lint) or self.whole.get(lint)
        return override.level if override else LINTS[lint].level


def judge(findings: Iterable[Finding], levels: Levels, source: Source) -> tuple[Finding, ...]:
    """Give every finding its level and its place in the spec; leave out what is off; sort."""
    judged = [
        replace(
            finding,
            level=levels.level(finding.lint, finding.family),
            position=_position(finding, source),
        )
        for finding in findings
    ]
    return tuple(sorted(finding for finding in judged if finding.level != OFF))


def failed(findings: Iterable[Finding]) -> bool:
    """Tell whether a finding is an error."""
    return any(finding.severity == ERROR for finding in findings)


def of_differences(differences: Iterable[Difference], out: Path) -> tuple[Finding, ...]:
    """Return what ``check`` complains about as findings; ``out`` is the output folder."""
    lints = {"missing": "SL101", "stale": "SL102", "orphan": "SL103"}
    return tuple(
        Finding(
            subject=str(out / difference.path),
            lint=lints[difference.problem],
            message=f"{difference.problem}: {PROBLEMS[difference.problem]}",
            position=Position(str(out / difference.path)),
        )
        for difference in differences
    )


def from_diagnostics(diagnostics: Iterable[Diagnostic]) -> tuple[Finding, ...]:
    """Return mistakes as findings, for the formats that know nothing else."""
    return tuple(
        Finding(
            subject=str(diagnostic.position),
            lint=diagnostic.lint or "SL000",
            message=diagnostic.message,
            position=diagnostic.position,
        )
        for diagnostic in diagnostics
    )


def _position(finding: Finding, source: Source) -> Position:
    if finding.position.file:
        return finding.position
    path = ("blocks", finding.owner) if finding.owner else ("families", finding.family)
    return source.find(path, finding.about) if finding.about else source.key(*path)
