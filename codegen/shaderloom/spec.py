"""The schema of ``variants.yaml``; the only module that knows pydantic.

``docs/spec.md`` is the reference. The schema says what may stand where; what the
parts mean together (names, numbers, storages) is checked by ``plan``.
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from shaderloom.errors import Diagnostic, SpecError, nearest
from shaderloom.source import KeyPath, Source, read_source

SCHEMA_VERSION = 1


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _axis_value(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise PydanticCustomError("loom", "an axis value is text or an integer")
    return value


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float)):
        raise PydanticCustomError("loom", "a default is a number, true or false")
    return value


AxisValue = Annotated[str | int, BeforeValidator(_axis_value)]


class Member(_Model):
    """A constant, push constant, uniform member or block parameter: ``name: type`` for short."""

    type: str
    default: Annotated[bool | int | float, BeforeValidator(_number)] = 0
    keep: str | None = None


def _short_member(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


Members = dict[str, Annotated[Member, BeforeValidator(_short_member)]]


class BindingSpec(_Model):
    """An operand (``name``), a uniform block (``uniform``) or a spliced block (``block``)."""

    name: str | None = None
    uniform: str | None = None
    block: str | None = None
    binding: int | None = Field(default=None, ge=0)
    storage: str | None = None
    access: Literal["read", "write"] | None = None
    dtype: str = "{dtype}"
    absent: str | None = None
    keep: str | None = None
    fields: Members = {}

    @model_validator(mode="after")
    def _one_kind(self) -> BindingSpec:
        kinds = [k for k in ("name", "uniform", "block") if getattr(self, k) is not None]
        if len(kinds) != 1:
            raise PydanticCustomError("loom", "a binding has one of 'name', 'uniform' and 'block'")
        allowed = {
            "name": {"name", "binding", "storage", "access", "dtype", "absent", "keep"},
            "uniform": {"uniform", "binding", "fields", "keep"},
            "block": {"block"},
        }[kinds[0]]
        extra = sorted(self.model_fields_set - allowed)
        if extra:
            context = {"key": extra[0], "kind": kinds[0]}
            raise PydanticCustomError("loom", "'{key}' does not go with '{kind}'", context)
        needed = {"name": ("storage", "access"), "uniform": ("fields",), "block": ()}[kinds[0]]
        missing = [key for key in needed if not getattr(self, key)]
        if missing:
            raise PydanticCustomError("loom", "missing key '{key}'", {"key": missing[0]})
        return self

    @property
    def label(self) -> str:
        return self.name or self.uniform or self.block or ""


class BlockSpec(_Model):
    """An interface block: everything that a shared header needs, spliced whole into families."""

    header: str
    bindings: list[BindingSpec] = []
    parameters: Members = {}
    constants: Members = {}


class FamilySpec(_Model):
    """A family: one template, one interface, and the axes that its variants differ in."""

    op: str
    template: str
    name: str
    axes: dict[str, list[AxisValue]]
    exclude: list[dict[str, AxisValue]] = []
    requires: list[str] = []
    target_env: str = "vulkan1.1"
    subgroup_size: int = Field(default=0, ge=0)
    bindings: list[BindingSpec]
    push_constants: Members = {}
    constants: Members = {}
    renamed_from: dict[str, str] = {}


class SpecModel(_Model):
    """The whole of ``variants.yaml``."""

    shaderloom: int
    enums: dict[str, dict[str, int]] = {}
    blocks: dict[str, BlockSpec] = {}
    families: dict[str, FamilySpec]


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
