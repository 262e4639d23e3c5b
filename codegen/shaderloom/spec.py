"""Read a spec and hold it against the schema; every mistake is told where it stands.

The schema (``spec_model``) says what may stand where; what the parts mean together
(names, numbers, storages) is checked by ``plan``. Only these two modules know pydantic.
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pydantic
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from shaderloom.errors import Diagnostic, SpecError, nearest
from shaderloom.source import KeyPath, Source, read_source
from shaderloom.spec_model import SpecModel

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Spec:
    """A spec that fits the schema, with the source that knows where each part stands."""

    model: SpecModel
    source: Source


def read_spec(path: Path, name: str) -> Spec:
    """Read and check the spec at ``path``; raises SpecError with every mistake found."""
    return check_schema(read_source(path, name))


def check_schema(source: Source) -> Spec:
    """Hold parsed YAML against the schema; raises SpecError with every mistake found."""
    try:
        model = SpecModel.model_validate(source.data)
    except pydantic.ValidationError as error:
        details = error.errors(include_url=False)
        raise SpecError(_diagnostic(detail, source) for detail in details) from None
    if model.shaderloom != SCHEMA_VERSION:
        message = f"schema version {model.shaderloom} is not supported; this tool reads version 1"
        raise SpecError(Diagnostic(source.value("shaderloom"), message))
    return Spec(model, source)


_WANTED = {
    "string_type": "text",
    "int_type": "an integer",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def _diagnostic(detail: ErrorDetails, source: Source) -> Diagnostic:
    path = _yaml_path(detail["loc"], source)
    name = path[-1] if path else ""
    value = detail["input"]
    kind = detail["type"]
    if kind == "extra_forbidden":
        known = _known_keys(SpecModel, path[:-1])
        return Diagnostic(source.key(*path), f"unknown key '{name}'{nearest(str(name), known)}")
    if kind == "missing":
        return Diagnostic(source.value(*path[:-1]), f"missing key '{detail['loc'][-1]}'")
    if kind in _WANTED:
        message = f"{_subject(path)} must be {_WANTED[kind]}, not {_shown(value)}"
    elif kind == "loom":
        message = detail["msg"]
    else:
        wanted = detail["msg"].removeprefix("Input should be ")
        message = f"{_subject(path)} must be {wanted}, not {_shown(value)}"
    return Diagnostic(source.value(*path), message)


def _yaml_path(loc: KeyPath, source: Source) -> KeyPath:
    """Drop what pydantic adds for the arms of a union, e.g. ('axes', 'dtype', 0, 'str')."""
    path = loc
    while path and path not in source.values and path[:-1] not in source.values:
        path = path[:-1]
    if path and path not in source.values and path[-1] in ("str", "int", "bool", "float"):
        path = path[:-1]
    return path


def _subject(path: KeyPath) -> str:
    named = [str(part) for part in path if isinstance(part, str)]
    return f"'{named[-1]}'" if named else "the spec"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    return f"'{value}'" if isinstance(value, str) else str(value).lower()


def _known_keys(model: Any, path: KeyPath) -> list[str]:
    """Return the keys that may stand in the mapping at ``path``, found by walking the types."""
    here = model
    for part in path:
        while typing.get_origin(here) in (Annotated, types.UnionType, typing.Union):
            here = typing.get_args(here)[0]
        if isinstance(here, type) and issubclass(here, BaseModel):
            here = here.model_fields[str(part)].annotation
        else:
            here = typing.get_args(here)[-1]
    if typing.get_origin(here) is Annotated:
        here = typing.get_args(here)[0]
    is_model = isinstance(here, type) and issubclass(here, BaseModel)
    return list(here.model_fields) if is_model else []
