"""Hold the Python and the C dispatcher, and the interpreter, together on random problems.

Problems and devices go to a C program as fixed rows of eight-byte fields; it answers with
one serialised record (or refusal) each, and Python serialises its own the same way.
"""

from __future__ import annotations

import importlib.util
import random
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from shaderloom.decide import DecisionError, Trace, decide
from shaderloom.decisions import Decisions, Input, OpRules
from shaderloom.emit_dispatch_py import problem_class
from shaderloom.expr import BOOL, FLOAT, Value
from shaderloom.interface import EnumPlan
from shaderloom.names import c_type

INT_MAX, INT64_MAX, INT64_MIN = 2**31 - 1, 2**63 - 1, -(2**63)
EDGES = (0, 1, 2, 3, 4, 5, -1, -7, 65535, 65536, INT_MAX, INT_MAX + 1, -INT_MAX - 1, 2**32)
EXTREMES = (INT64_MAX, INT64_MAX - 3, INT64_MIN, INT64_MIN + 1, 2**62, -(2**40))
FLOATS = (0.0, -0.0, 1.0, -1.5, 0.1, 6.0, 1e-45, 3.4028235e38, 3.5e38, -1e300, 1e-320)
SPECIAL_FLOATS = (float("inf"), float("-inf"), float("nan"))

Values = dict[str, Value]


@dataclass(frozen=True)
class Outcome:
    """How many problems were dispatched and refused, and the first that differed."""

    counts: Counter[str]
    differences: list[str]


def load_dispatcher(path: Path) -> ModuleType:
    """Import a generated dispatch.py from where it was written."""
    spec = importlib.util.spec_from_file_location("generated_dispatch", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


def random_values(inputs: Sequence[Input], rng: random.Random, wild: float) -> Values:
    """Draw a value for every input; ``wild`` is the chance of an edge value for a number."""
    values: Values = {}
    for item in inputs:
        if item.type.values:
            likely = item.default if item.default is not None else item.type.values[0]
            values[item.name] = rng.choice((str(likely), *item.type.values))
        elif item.type == BOOL:
            values[item.name] = rng.random() < 0.4
        elif item.type == FLOAT:
            pool = SPECIAL_FLOATS if rng.random() < wild else FLOATS
            values[item.name] = rng.choice((*pool, rng.uniform(-10, 10)))
        elif rng.random() < wild:
            values[item.name] = rng.choice(EDGES if rng.random() < 0.8 else EXTREMES)
        elif item.default is not None and rng.random() < 0.5:
            values[item.name] = item.default
        else:
            values[item.name] = rng.choice((1, 1, rng.randint(1, 9), rng.randint(1, 300)))
    return values


def draw(decisions: Decisions, op: OpRules, rng: random.Random) -> tuple[Values, Values]:
    """Draw a problem and a device; half of both are sensible, so that many are dispatched."""
    wild = rng.choice((0.0, 0.0, 0.05, 0.4))
    problem = random_values(op.inputs, rng, wild)
    device = random_values(decisions.device, rng, rng.choice((0.0, 0.0, 0.02, 0.3)))
    for name in device:
        if name.startswith(("max_texture", "max_grid")) and rng.random() < 0.7:
            device[name] = rng.choice((2048, 16384, 65535))
        if name.startswith(("max_local", "max_inv")) and rng.random() < 0.7:
            device[name] = rng.choice((64, 128, 256, 1024))
    return problem, device


def pack_row(
    inputs: Sequence[Input], values: Mapping[str, Value], enums: Mapping[str, Any]
) -> bytes:
    """Eight bytes a field: a double, or an integer (a bool's 0 or 1, an enum's value)."""
    data = b""
    for item in inputs:
        value = values[item.name]
        if item.type == FLOAT:
            data += struct.pack("<d", value)
        elif item.type.values:
            data += struct.pack("<q", enums[item.type.name][value])
        else:
            data += struct.pack("<q", int(value))
    return data


def serialise(record: Any) -> bytes:
    """Serialise a Dispatch of Python or a Record of the interpreter."""
    parts = [_text(record.shader), struct.pack("<I", len(record.spec))]
    parts += [struct.pack("<II", *pair) for pair in record.spec]
    parts.append(struct.pack("<I", len(record.operands)))
    parts += [struct.pack("<I", binding) + _text(slot) for binding, slot in record.operands]
    parts += [struct.pack("<I", len(record.push_constants)), record.push_constants]
    parts.append(struct.pack("<I", len(record.uniforms)))
    parts += [struct.pack("<II", b, len(data)) + data for b, data in record.uniforms]
    sizes = (*record.global_size, *record.local_size, *record.grid, *record.out_extent)
    parts.append(struct.pack("<12I", *sizes))
    return b"".join(parts)


def serialise_all(records: Sequence[Any]) -> bytes:
    return struct.pack("<I", len(records)) + b"".join(map(serialise, records))


def refusal(message: str) -> bytes:
    return struct.pack("<I", 0) + _text(message)


def _text(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode()


REASONS = ("shader", "local_size", "spec_constants", "push_constants", "grid", "operands")


def comparison(module: ModuleType, old: Any, new: Any) -> bytes:
    """Serialise what a change from ``old`` to ``new`` means, as the C program does."""
    reasons = module.reencode_reasons(old, new)
    changed = module.changed_uniforms(old, new)
    bits = sum(1 << REASONS.index(reason) for reason in reasons)
    blocks = sum(1 << i for i, (binding, _) in enumerate(new.uniforms) if binding in changed)
    return struct.pack("<II", bits, blocks)


class Harness:
    """One compiled C program for one spec's dispatcher."""

    def __init__(
        self, decisions: Decisions, enums: Sequence[EnumPlan], generated: Path, program: Path
    ) -> None:
        self.decisions = decisions
        self.enum_plans = enums
        self.enums: dict[str, dict[str, int]] = {e.name: dict(e.values) for e in enums}
        for op in decisions.ops:
            route = op.inputs[-1].type
            self.enums[route.name] = {value: i for i, value in enumerate(route.values)}
        self.module = load_dispatcher(generated / "dispatch.py")
        self.program = program

    def compare(self, problems: int, seed: int, interpret_every: int) -> Outcome:
        """Compare on random problems of every op in turn; the interpreter joins in now and then.

        An op comes as often as it has routes.
        """
        rng = random.Random(seed)
        turns = [i for i, op in enumerate(self.decisions.ops) for _ in op.routes]
        drawn = []
        rows = bytearray()
        for i in range(problems):
            turn = turns[i % len(turns)]
            op = self.decisions.ops[turn]
            problem, device = draw(self.decisions, op, rng)
            drawn.append((op, problem, device))
            rows += struct.pack("<q", turn)
            rows += pack_row(self.decisions.device, device, self.enums)
            rows += pack_row(op.inputs, problem, self.enums)
        ran = subprocess.run([self.program], input=bytes(rows), capture_output=True, check=True)
        return self._hold(drawn, ran.stdout, interpret_every)

    def _hold(
        self, drawn: Sequence[tuple[OpRules, Values, Values]], answers: bytes, every: int
    ) -> Outcome:
        counts: Counter[str] = Counter()
        differences: list[str] = []
        at = 0
        previous: dict[str, Any] = {}
        for i, (op, problem, device) in enumerate(drawn):
            expected, kind, records = self._python(op, problem, device)
            for record in records[:1]:
                expected += comparison(self.module, previous.get(op.name, record), record)
                previous[op.name] = record
            got = answers[at : at + len(expected)]
            counts[kind] += 1
            if got != expected:
                differences.append(f"C: {op.name} {problem} {device}: {got!r} != {expected!r}")
                break  # the rest of the stream cannot be told apart
            at += len(expected)
            if i % every == 0:
                told = self._interpreted(op, problem, device)
                if told != expected[: len(told)]:
                    differences.append(f"interpreter: {op.name} {problem} {device}: {told!r}")
        if not differences and at != len(answers):
            differences.append(f"C answered {len(answers) - at} bytes more")
        return Outcome(counts, differences)

    def _python(self, op: OpRules, problem: Values, device: Values) -> tuple[bytes, str, Any]:
        pick = getattr(self.module, f"pick_{op.name}")
        given = getattr(self.module, problem_class(op.name))(**problem)
        try:
            records = pick(given, self.module.Device(**device))
        except self.module.DispatchError as error:
            message = str(error)
            overflow = "overflowed" in message
            return refusal(message), "arithmetic error" if overflow else "refused", ()
        return serialise_all(records), "dispatched", records

    def _interpreted(self, op: OpRules, problem: Values, device: Values) -> bytes:
        try:
            records = decide(self.decisions, self.enum_plans, op, problem, device, Trace())
        except DecisionError as error:
            return refusal(str(error))
        return serialise_all(records)


def build_program(
    decisions: Decisions, generated: Path, folder: Path, compiler: Sequence[str]
) -> Path:
    """Compile the dispatcher with a main that answers rows; returns the program."""
    main = folder / "main.c"
    main.write_text(_main_c(decisions))
    program = folder / "answer"
    sources = [main, generated / "dispatch.c", generated / "registry.c"]
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", f"-I{generated}"]
    subprocess.run([*compiler, *flags, *sources, "-o", program], check=True)
    return program


def _main_c(decisions: Decisions) -> str:
    device = "\n".join(_reads("device", decisions.device))
    cases = "\n".join(_case(i, op) for i, op in enumerate(decisions.ops))
    return f"""#include "dispatch.h"
#include <stdio.h>
#include <string.h>
static void put(uint32_t v) {{ fwrite(&v, 4, 1, stdout); }}
static void put_text(const char *s) {{ put((uint32_t)strlen(s)); fputs(s, stdout); }}
static int64_t integer(void) {{
  int64_t v = 0;
  if (fread(&v, 8, 1, stdin) != 1) v = 0;
  return v;
}}
static double number(void) {{
  double v = 0;
  if (fread(&v, 8, 1, stdin) != 1) v = 0;
  return v;
}}
static void put_record(const shaderloom_dispatch *r) {{
  uint32_t i;
  put_text(shaderloom_get_shader(r->shader)->name);
  put(r->spec_count);
  for (i = 0; i < r->spec_count; ++i) {{ put(r->spec_ids[i]); put(r->spec_values[i]); }}
  put(r->operand_count);
  for (i = 0; i < r->operand_count; ++i) {{
    put(r->operands[i].binding);
    put_text(shaderloom_slot_name(r->operands[i].slot));
  }}
  put(r->push_constant_size);
  fwrite(r->push_constants, 1, r->push_constant_size, stdout);
  put(r->uniform_count);
  for (i = 0; i < r->uniform_count; ++i) {{
    put(r->uniforms[i].binding);
    put(r->uniforms[i].size);
    fwrite(r->uniforms[i].data, 1, r->uniforms[i].size, stdout);
  }}
  fwrite(r->global_size, 4, 3, stdout);
  fwrite(r->local_size, 4, 3, stdout);
  fwrite(r->grid, 4, 3, stdout);
  fwrite(r->out_extent, 4, 3, stdout);
}}
static void answer(uint32_t count, const shaderloom_dispatch *r, const shaderloom_error *error,
                   shaderloom_dispatch *previous, int *known) {{
  uint32_t i;
  put(count);
  if (!count) {{ put_text(error->message); return; }}
  for (i = 0; i < count; ++i) put_record(&r[i]);
  if (!*known) *previous = *r;
  put(shaderloom_reencode_reasons(previous, r));
  put(shaderloom_changed_uniforms(previous, r));
  *previous = *r;
  *known = 1;
}}
int main(void) {{
  static shaderloom_dispatch previous[{len(decisions.ops)}];
  static int known[{len(decisions.ops)}];
  static shaderloom_dispatch r[8192]; /* two families, at most 4096 times */
  shaderloom_error error;
  shaderloom_device device;
  int64_t op;
  while (fread(&op, 8, 1, stdin) == 1) {{
{device}
    switch (op) {{
{cases}
    }}
  }}
  return 0;
}}
"""


def _case(index: int, op: OpRules) -> str:
    reads = "\n".join(_reads("problem", op.inputs))
    return f"""    case {index}: {{
      {c_type(op.name, "problem")} problem;
{reads}
      answer(shaderloom_pick_{op.name}(&problem, &device, r, 8192, &error), r, &error,
             &previous[{index}], &known[{index}]);
      break;
    }}"""


def _reads(owner: str, inputs: Iterable[Input]) -> list[str]:
    casts: dict[Any, Callable[[Input], str]] = {
        BOOL: lambda _: "integer() != 0",
        FLOAT: lambda _: "number()",
    }
    lines = []
    for item in inputs:
        value = "integer()"
        if item.type in casts:
            value = casts[item.type](item)
        elif item.type.values:
            value = f"({c_type(item.type.name)})integer()"
        lines.append(f"      {owner}.{item.name} = {value};")
    return lines
