"""Findings as text, JSON, Markdown, workflow commands of GitHub, and SARIF 2.1.0."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from shaderloom import __version__
from shaderloom.lints import LINTS, OFF, Finding

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
PAGE = "docs/lints.md"


def text(findings: Sequence[Finding]) -> str:
    """Return one line a finding."""
    return "".join(f"{finding}\n" for finding in findings)


def records(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return findings as plain data; line and column are 0 where there is none."""
    return [
        {
            "subject": finding.subject,
            "lint": finding.lint,
            "name": LINTS[finding.lint].name,
            "level": finding.severity,
            "message": finding.message,
            "file": finding.position.file,
            "line": finding.position.line,
            "column": finding.position.column,
        }
        for finding in findings
    ]


def as_json(findings: Sequence[Finding]) -> str:
    """Return a JSON list of ``records``."""
    return json.dumps(records(findings), indent=2, sort_keys=True) + "\n"


def markdown(findings: Sequence[Finding]) -> str:
    """Return a table, or a sentence when there is nothing to show."""
    if not findings:
        return "No findings.\n"
    rows = ["| level | lint | subject | finding |", "|---|---|---|---|"]
    for finding in findings:
        cells = (finding.severity, finding.rule, f"`{finding.subject}`", finding.message)
        rows.append(f"| {' | '.join(map(cell, cells))} |")
    return "\n".join(rows) + "\n"


def cell(value: str) -> str:
    """Return text as it may stand in a cell of a Markdown table."""
    return " ".join(value.split()).replace("|", "\\|").replace("<", "&lt;")


def github(findings: Sequence[Finding]) -> str:
    """Return workflow commands, which GitHub shows beside the line that they name."""
    lines = []
    for finding in findings:
        where = finding.position
        properties = [("file", where.file), ("line", where.line), ("col", where.column)]
        properties.append(("title", finding.rule))
        shown = ",".join(f"{name}={_property(str(value))}" for name, value in properties if value)
        lines.append(f"::{finding.severity} {shown}::{_data(_message(finding))}\n")
    return "".join(lines)


def _message(finding: Finding) -> str:
    """Return the message, with the subject unless that is just the place."""
    where = (finding.position.file, str(finding.position))
    return finding.message if finding.subject in where else f"{finding.subject}: {finding.message}"


def _data(value: str) -> str:
    """Escape the message of a workflow command."""
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    """Escape a property of a workflow command, in which : and , separate."""
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def sarif(findings: Sequence[Finding]) -> str:
    """Return a SARIF 2.1.0 log of one run, with every lint as a rule."""
    rules = [
        {
            "id": lint.id,
            "name": lint.name,
            "shortDescription": {"text": lint.summary},
            "help": {"text": f"{PAGE}, section {lint.id}"},
            "defaultConfiguration": {"level": "none" if lint.level == OFF else lint.level},
        }
        for lint in LINTS.values()
    ]
    index = {lint: number for number, lint in enumerate(LINTS)}
    log = {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "shaderloom", "version": __version__, "rules": rules}},
                "results": [_result(finding, index[finding.lint]) for finding in findings],
            }
        ],
    }
    return json.dumps(log, indent=2, sort_keys=True) + "\n"


def _result(finding: Finding, rule_index: int) -> dict[str, Any]:
    where = finding.position
    physical: dict[str, Any] = {"artifactLocation": {"uri": quote(where.file.replace("\\", "/"))}}
    if where.line:
        physical["region"] = {"startLine": where.line, "startColumn": max(1, where.column)}
    return {
        "ruleId": finding.lint,
        "ruleIndex": rule_index,
        "level": finding.severity,
        "message": {"text": _message(finding)},
        "locations": [
            {
                "physicalLocation": physical,
                "logicalLocations": [{"fullyQualifiedName": finding.subject}],
            }
        ],
    }


FORMATS: dict[str, Callable[[Sequence[Finding]], str]] = {
    "text": text,
    "json": as_json,
    "markdown": markdown,
    "github": github,
    "sarif": sarif,
}
ANNOTATIONS = ("github", "sarif")  # which show mistakes too, for a program reads them
