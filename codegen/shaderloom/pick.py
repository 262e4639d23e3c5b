"""``shaderloom pick``: text in, every rule that was tried out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shaderloom.decide import DecisionError, Record, Step, Trace, complete, decide
from shaderloom.decisions import Decisions, Group, Input
from shaderloom.errors import Diagnostic, Position, SpecError, nearest
from shaderloom.expr import BOOL, FLOAT, INT64_MAX, INT64_MIN, Value
from shaderloom.interface import Plan

_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def pick(
    plan: Plan,
    decisions: Decisions | None,
    op_name: str,
    problem: Sequence[str],
    device: Sequence[str],
) -> tuple[str, bool]:
    """Return the report on one decision, and whether it ended in a dispatch.

    ``problem`` and ``device`` hold settings such as ``in=1,64,56,56`` or ``dtype=half``.
    Raises SpecError for an unknown op or field and for a value that does not fit.
    """
    ops = {op.name: op for op in decisions.ops} if decisions else {}
    if decisions is None or op_name not in ops:
        message = f"no op is called '{op_name}'{nearest(op_name, sorted(ops))}"
        raise SpecError(Diagnostic(Position(plan.spec_name), message))
    op = ops[op_name]
    values = _values("--set", op.inputs, op.groups, problem)
    of_device = _values("--device", decisions.device, decisions.device_groups, device)
    trace = Trace()
    lines = [op.name]
    try:
        records = decide(decisions, plan.enums, op, values, of_device, trace)
    except DecisionError as error:
        return _report(lines, trace, [f"refused: {error}"]), False
    text = [line for record in records for line in _record(record)]
    return _report(lines, trace, text), True


def _report(head: list[str], trace: Trace, tail: Iterable[str]) -> str:
    return "\n".join([*head, *map(_step, trace.steps), *tail]) + "\n"


def _step(step: Step) -> str:
    values = ", ".join(f"{name}={_shown(value)}" for name, value in step.values)
    return f"  {step.rule}: {step.text} -> {_shown(step.result)}" + (
        f"  ({values})" if values else ""
    )


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _record(record: Record) -> Iterable[str]:
    yield f"dispatch: {record.shader}"
    yield f"  spec constants   {', '.join(f'{id_}={value}' for id_, value in record.spec)}"
    yield f"  operands         {', '.join(f'{number}={slot}' for number, slot in record.operands)}"
    yield f"  push constants   {record.push_constants.hex(' ', 4) or 'none'}"
    for number, data in record.uniforms:
        yield f"  uniform block {number}  {data.hex(' ', 4)}"
    for name, sizes in (
        ("global size", record.global_size),
        ("local size", record.local_size),
        ("grid", record.grid),
        ("output extent", record.out_extent),
    ):
        yield f"  {name:16} {' x '.join(map(str, sizes))}"


def _values(
    option: str, inputs: Sequence[Input], groups: Sequence[Group], settings: Sequence[str]
) -> dict[str, Value]:
    types = {item.name: item for item in inputs}
    parts = {group.name: group.parts for group in groups}
    given: dict[str, Value] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise _wrong(option, f"'{setting}' is not NAME=VALUE")
        if name in parts:
            names, texts = parts[name], text.split(",")
            if len(texts) == 1:
                texts *= len(names)  # stride=2 is stride=2,2
        elif name in types:
            names, texts = (name,), [text]
        else:
            hint = nearest(name, [*parts, *types])
            raise _wrong(option, f"no field is called '{name}'{hint}")
        if len(texts) != len(names):
            wanted = ", ".join(names)
            raise _wrong(option, f"'{name}' takes {len(names)} values ({wanted}), not {len(texts)}")
        for part, value in zip(names, texts, strict=True):
            given[part] = _value(option, types[part], value)
    try:
        return complete(inputs, given)
    except KeyError as error:
        raise _wrong(option, f"'{error.args[0]}' has no default and must be given") from None


def _value(option: str, item: Input, text: str) -> Value:
    if item.type.values:
        if text in item.type.values:
            return text
        hint = nearest(text, item.type.values)
        known = ", ".join(item.type.values)
        raise _wrong(option, f"'{item.name}' is one of {known}, not '{text}'{hint}")
    try:
        if item.type == BOOL:
            return _TRUTH[text.lower()]
        if item.type == FLOAT:
            return float(text)
        number = int(text)
    except (KeyError, ValueError):
        raise _wrong(option, f"'{item.name}' is {item.type}, not '{text}'") from None
    if not INT64_MIN <= number <= INT64_MAX:
        raise _wrong(option, f"'{item.name}' does not fit in 64 bits: {text}")
    return number


def _wrong(option: str, message: str) -> SpecError:
    return SpecError(Diagnostic(Position(option), message))
