"""Specialization constants baked into a module: what a driver then sees are plain constants.

The unoptimised module is rewritten, so that constants are still found by their SpecId however an
optimiser would have folded them; ``spirv-opt`` then folds what follows from their values, and
``spirv-val`` checks the result.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from shaderloom.errors import CompileError, Diagnostic, Position
from shaderloom.interface import Frozen, VariantPlan
from shaderloom.process import run_all
from shaderloom.spirv import Instruction, Module, read_module
from shaderloom.spirv_grammar import Deco, Op
from shaderloom.spirv_write import write_module
from shaderloom.toolchain import Toolchain

# OpSpecConstantOp and OpSpecConstantComposite of frozen constants become plain constants first:
# what -O folds starts from those.
FOLD = ("--strip-debug", "--fold-spec-const-op-composite", "--unify-const", "-O")


def rewrite(data: bytes, name: str, frozen: Iterable[Frozen]) -> bytes:
    """Return the module with the constants of these SpecIds made plain.

    Nothing is folded yet. Raises SpirvError when the module cannot be read, CompileError when
    it has no constant of an ID.
    """
    module = read_module(data, name)
    values = {constant.id: constant.bits for constant in frozen}
    # By number: one SpecId may decorate several constants, as it does a local size from 1.6 on.
    targets = {
        i.operands[0]: i.operands[2]
        for i in module.find(Op.DECORATE)
        if i.operands[1] == Deco.SPEC_ID and i.operands[2] in values
    }
    missing = sorted(values.keys() - set(targets.values()))
    if missing:
        message = f"the module has no specialization constant {missing[0]}"
        raise CompileError(Diagnostic(Position(name), message))
    bits = {identifier: values[spec_id] for identifier, spec_id in targets.items()}
    return write_module(module, [i for old in module.head for i in _frozen(module, old, bits)])


def _frozen(module: Module, old: Instruction, bits: Mapping[int, int]) -> tuple[Instruction, ...]:
    opcode, operands = old
    if opcode == Op.DECORATE and operands[1] == Deco.SPEC_ID and operands[0] in bits:
        return ()
    if opcode in (Op.SPEC_CONSTANT_TRUE, Op.SPEC_CONSTANT_FALSE) and operands[1] in bits:
        opcode = Op.CONSTANT_TRUE if bits[operands[1]] else Op.CONSTANT_FALSE
        return (Instruction(opcode, operands),)
    if opcode == Op.SPEC_CONSTANT and operands[1] in bits:
        if module.definition(operands[0]).operands[1] != 32:
            message = f"constant %{operands[1]} is not of 32 bits"
            raise CompileError(Diagnostic(Position(module.name), message))
        return (Instruction(Op.CONSTANT, (*operands[:2], bits[operands[1]])),)
    return (old,)


def freeze(
    debug: bytes, variant: VariantPlan, settings: Iterable[Frozen], toolchain: Toolchain
) -> bytes:
    """Return the optimised module of ``variant`` with ``settings`` baked in.

    ``debug`` is its unoptimised module. Raises CompileError when spirv-opt or spirv-val refuse,
    ToolchainError when one of them is missing.
    """
    optimizer, validator = toolchain.need("spirv-opt"), toolchain.need("spirv-val")
    rewritten = rewrite(debug, variant.name, settings)
    environment = ("--target-env", variant.target_env)
    with tempfile.TemporaryDirectory(prefix="shaderloom-") as temporary:
        folder = Path(temporary)
        (folder / "in.spv").write_bytes(rewritten)
        for tool, arguments in (
            (optimizer, (*FOLD, "=".join(environment), "in.spv", "-o", "out.spv")),
            (validator, (*environment, "out.spv")),
        ):
            [ran] = run_all([tool.command(*arguments, cwd=folder)], 1)
            if ran.status:
                said = (ran.stderr + ran.stdout).strip().splitlines()
                message = f"{tool.name} exited {ran.status}: {said[0] if said else 'no message'}"
                raise CompileError(Diagnostic(Position(variant.name), message))
        frozen = (folder / "out.spv").read_bytes()
    read_module(frozen, variant.name)
    return frozen
