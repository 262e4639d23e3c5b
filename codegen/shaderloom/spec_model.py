"""What may stand in ``variants.yaml``, as pydantic models; ``docs/spec.md`` is the reference."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError


class Model(BaseModel):
    """What all parts of the schema share: no unknown key, no conversion, no change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _axis_value(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise PydanticCustomError("loom", "an axis value is text or an integer")
    return value


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float)):
        raise PydanticCustomError("loom", "a default is a number, true or false")
    return value


def _size(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise PydanticCustomError("loom", "a size is an integer, or text that an axis fills")
    return value


AxisValue = Annotated[str | int, BeforeValidator(_axis_value)]


class Member(Model):
    """A constant, push constant, uniform member or block parameter: ``name: type`` for short."""

    type: str
    default: Annotated[bool | int | float, BeforeValidator(_number)] = 0
    keep: str | None = None


def _short_member(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


Members = dict[str, Annotated[Member, BeforeValidator(_short_member)]]


class BindingSpec(Model):
    """An operand (``name``), a uniform block (``uniform``) or a spliced block (``block``)."""

    name: str | None = None
    uniform: str | None = None
    block: str | None = None
    binding: int | None = Field(default=None, ge=0)
    storage: str | None = None
    access: Literal["read", "write"] | None = None
    dtype: str = "{dtype}"
    absent: str | None = None
    present: str | None = None
    packed_by: str | None = None
    operand: str | None = None
    keep: str | None = None
    fields: Members = {}

    @model_validator(mode="after")
    def _one_kind(self) -> BindingSpec:
        kinds = [k for k in ("name", "uniform", "block") if getattr(self, k) is not None]
        if len(kinds) != 1:
            raise PydanticCustomError("loom", "a binding has one of 'name', 'uniform' and 'block'")
        of_operand = {"storage", "access", "dtype", "absent", "present", "packed_by", "operand"}
        allowed = {
            "name": {"name", "binding", "keep", *of_operand},
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


def _short_input(value: Any) -> Any:
    return {"type": value} if isinstance(value, (str, list)) else value


def _short_sizes(value: Any) -> Any:
    return {"cases": value} if isinstance(value, list) else value


def _expression(value: Any) -> Any:
    """Take 4 and true for the expressions they are; YAML reads them as numbers."""
    if isinstance(value, bool):
        return str(value)
    return repr(value) if isinstance(value, (int, float)) else value


def _type_name(value: Any) -> Any:
    if isinstance(value, str) or (
        isinstance(value, list) and value and all(isinstance(part, str) for part in value)
    ):
        return value
    raise PydanticCustomError("loom", "a type is a name, or a list of the names of its parts")


def _default(value: Any) -> Any:
    if isinstance(value, (str, int, float)):
        return value
    raise PydanticCustomError("loom", "a default is a number, true, false or an enum's value")


Expression = Annotated[str, BeforeValidator(_expression)]
Lets = dict[str, Expression]


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_expression(part) for part in value)
    return (_expression(value),)


# An expression, or one for each lane of a vector.
Values = dict[str, Annotated[tuple[str, ...], BeforeValidator(_value)]]


class InputSpec(Model):
    """A field of a problem or of the device; ``in: [n, c]`` is two integers in_n and in_c."""

    type: Annotated[str | list[str], BeforeValidator(_type_name)]
    default: Annotated[bool | int | float | str | None, BeforeValidator(_default)] = None


Inputs = dict[str, Annotated[InputSpec, BeforeValidator(_short_input)]]


class BlockSpec(Model):
    """An interface block: everything that a shared header needs, spliced whole into families."""

    header: str
    bindings: list[BindingSpec] = []
    parameters: Members = {}
    constants: Members = {}
    problem: Inputs = {}


class RequireSpec(Model):
    """What must hold of a problem; ``error`` may name integers, e.g. ``groups is {groups}``."""

    that: Expression
    error: str


def _families(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return tuple(value)
    raise PydanticCustomError("loom", "'take' is a family, or a list of families")


class RouteSpec(Model):
    """A way to compute an op: possible when ``legal``, preferred when ``when`` holds too.

    Its families are dispatched in order, all of them ``repeat`` times over.
    """

    route: str
    take: Annotated[tuple[str, ...], BeforeValidator(_families)]
    repeat: Expression = "1"
    legal: Expression = "True"
    when: Expression = "True"


class OpSpec(Model):
    """An op: the problem a caller describes, what follows from it, and the routes in order.

    ``require`` is checked before the lets, over the problem; ``ensure`` after them.
    """

    problem: Inputs
    let: Lets = {}
    require: list[RequireSpec] = []
    ensure: list[RequireSpec] = []
    values: Values = {}
    routes: list[RouteSpec]


class LocalSpec(Model):
    """The local-size rule that a family uses when ``when`` holds; the last has no ``when``."""

    use: str
    when: Expression | None = None


def _short_local(value: Any) -> Any:
    return [{"use": value}] if isinstance(value, str) else value


class DispatchSpec(Model):
    """How a family is dispatched: its axes, the contents of its interface, its sizes.

    ``extent`` is the size of what it writes: texels of a texture, elements (n, 1, 1) of a buffer.
    """

    let: Lets = {}
    axes: dict[str, Expression] = {}
    values: Values = {}
    size: list[Expression] = Field(alias="global", min_length=3, max_length=3)
    local: Annotated[list[LocalSpec], BeforeValidator(_short_local), Field(min_length=1)]
    fold: Literal["xy", "xz", "yz"] | None = None
    extent: list[Expression] = Field(min_length=3, max_length=3)


class CaseSpec(Model):
    """One case of a local-size rule; the last has no ``when``."""

    when: Expression | None = None
    size: list[Expression] = Field(min_length=3, max_length=3)


class SizeRuleSpec(Model):
    """A local-size rule over the global size gx, gy, gz: the first case that holds."""

    let: Lets = {}
    cases: list[CaseSpec]


class LintSpec(Model):
    """The level of a lint where it is not the lint's own, and why."""

    level: Literal["error", "warning", "off"]
    reason: str


Lints = dict[str, LintSpec]


def _frozen_value(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    raise PydanticCustomError("loom", "a value is a number, true, false or an enum's value")


class FrozenSpec(Model):
    """A further variant of each variant: some of its constants are baked in.

    The dispatcher takes it where ``prefer`` holds and the constants have these very values.
    """

    name: str
    set: Annotated[dict[str, Annotated[str, BeforeValidator(_frozen_value)]], Field(min_length=1)]
    prefer: Expression = "True"


class FamilySpec(Model):
    """A family: one template, one interface, and the axes that its variants differ in.

    ``name_parts`` is how ``name`` spells the values of an axis, where not as they are.
    """

    op: str
    template: str
    name: str
    axes: dict[str, list[AxisValue]]
    name_parts: dict[str, dict[str, str]] = {}
    exclude: list[dict[str, AxisValue]] = []
    requires: list[str] = []
    requires_by: dict[str, dict[str, list[str]]] = {}
    target_env: str = "vulkan1.1"
    subgroup_size: Annotated[str | int, BeforeValidator(_size)] = 0
    cooperative_matrix: str = ""
    bindings: list[BindingSpec]
    operands: dict[str, str] = {}
    push_constants: Members = {}
    constants: Members = {}
    renamed_from: dict[str, str] = {}
    shared_memory: int = Field(default=0, ge=0)
    frozen: list[FrozenSpec] = []
    lints: Lints = {}
    dispatch: DispatchSpec | None = None


class SpecModel(Model):
    """The whole of ``variants.yaml``."""

    shaderloom: int
    enums: dict[str, dict[str, int]] = {}
    blocks: dict[str, BlockSpec] = {}
    families: dict[str, FamilySpec]
    device: Inputs = {}
    local_sizes: dict[str, Annotated[SizeRuleSpec, BeforeValidator(_short_sizes)]] = {}
    ops: dict[str, OpSpec] = {}
    lints: Lints = {}
