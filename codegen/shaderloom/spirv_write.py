"""A writer of SPIR-V modules: decoded instructions back to words (specification, section 2.3)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from shaderloom.spirv import MAGIC, Instruction, Module


def write_module(module: Module, head: Sequence[Instruction]) -> bytes:
    """Return the binary, little-endian, of ``module`` with another ``head``.

    What ``head`` defines must be below the module's bound. The generator's magic number is 0,
    as the specification has it for a tool that registered none.
    """
    major, minor = module.version
    words = [MAGIC, major << 16 | minor << 8, 0, module.bound, 0]
    for instruction in (*head, *module.body):
        words += _words(instruction)
    return struct.pack(f"<{len(words)}I", *words)


def _words(instruction: Instruction) -> Iterable[int]:
    yield (len(instruction.operands) + 1) << 16 | instruction.opcode
    yield from instruction.operands
