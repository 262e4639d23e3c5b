"""The first witness: what a SPIR-V module declares, and what a shipped module still uses.

``reflect`` reads an unoptimised module, in which every declaration and its name survive;
``used`` reads the optimised, stripped one that ships. Both take one compute entry point and
plain descriptors: what no ``Kind`` describes (descriptor arrays, separate samplers, texel
buffers) is a ``SpirvError``, never silence.
"""

from __future__ import annotations

from shaderloom.interface import (
    Kind,
    ReflectedBinding,
    ReflectedConstant,
    Reflection,
    Used,
)
from shaderloom.spirv import Instruction, Module, read_module, unreadable
from shaderloom.spirv_grammar import Deco, Op
from shaderloom.spirv_types import Blocks, constant_integer, constant_value, label

GL_COMPUTE = 5  # execution model
_STAGES = {  # execution models (section 3.3)
    0: "vertex",
    1: "tessellation control",
    2: "tessellation evaluation",
    3: "geometry",
    4: "fragment",
    GL_COMPUTE: "compute",
    6: "OpenCL kernel",
}
MODE_LOCAL_SIZE_ID = 38
BUILT_IN_WORKGROUP_SIZE = 25
UNIFORM_CONSTANT, UNIFORM, PUSH_CONSTANT, STORAGE_BUFFER = 0, 2, 9, 12  # storage classes

MAX_DESCRIPTORS = 256  # twice what Vulkan guarantees a stage; bounds the work on a hostile file

_OTHERS = {  # types of descriptors that no Kind describes
    Op.TYPE_SAMPLER: "a sampler by itself, which shaderloom does not describe",
    Op.TYPE_ARRAY: "an array of descriptors, which shaderloom does not describe",
    Op.TYPE_RUNTIME_ARRAY: "an array of descriptors, which shaderloom does not describe",
}
_DIMS = {0: "1d", 1: "2d", 2: "3d", 3: "cube"}
_FORMATS = (  # image formats by number (section 3.11); 0 is no format
    "",
    *("rgba32f", "rgba16f", "r32f", "rgba8", "rgba8_snorm", "rg32f", "rg16f"),
    *("r11f_g11f_b10f", "r16f", "rgba16", "rgb10_a2", "rg16", "rg8", "r16", "r8"),
    *("rgba16_snorm", "rg16_snorm", "rg8_snorm", "r16_snorm", "r8_snorm"),
    *("rgba32i", "rgba16i", "rgba8i", "r32i", "rg32i", "rg16i", "rg8i", "r16i", "r8i"),
    *("rgba32ui", "rgba16ui", "rgba8ui", "r32ui", "rgb10_a2ui", "rg32ui", "rg16ui"),
    *("rg8ui", "r16ui", "r8ui", "r64ui", "r64i"),
)


def reflect(data: bytes, name: str) -> Reflection:
    """Read the declared interface of an unoptimised module; ``name`` is its file.

    A block's bools are uint, as SPIR-V has no bool in memory. Raises ``SpirvError``.
    """
    return declares(read_module(data, name))


def declares(module: Module) -> Reflection:
    """The same of a module that was read."""
    _check_entry_point(module)
    blocks = Blocks(module)
    bindings = [binding for _, binding in _descriptors(module, blocks)]
    local_size = _local_size_ids(module)
    push = _push_constants(module)
    return Reflection(
        bindings=tuple(sorted(bindings, key=binding_order)),
        constants=tuple(sorted(_constants(module, local_size), key=lambda c: (c.id, c.name))),
        push_constants=blocks.fields(_pointee(module, push)) if push else (),
        local_size_ids=local_size,
    )


def used(data: bytes, name: str) -> Used:
    """Find what the functions of an optimised module reach, from their instructions back.

    A constant counts when code reaches it through any chain of constants, types and variables;
    a field when an access chain starts at it, or when the code takes its block whole. The
    constants of the local size are left out, as in ``Reflection``. A function that is never
    called counts too: the optimiser removes those. Raises ``SpirvError``.
    """
    return uses(read_module(data, name))


def uses(module: Module) -> Used:
    """The same of a module that was read."""
    _check_entry_point(module)
    blocks = Blocks(module)
    reached = _reached(module)
    descriptors = {
        variable: binding
        for variable, binding in _descriptors(module, blocks)
        if variable.operands[1] in reached
    }
    uniform = [v for v, binding in descriptors.items() if binding.kind is Kind.UNIFORM_BUFFER]
    push = _push_constants(module)
    fields = _accessed(module, blocks, [*uniform, push] if push else uniform)
    local_size = _local_size_ids(module)
    return Used(
        bindings=frozenset(binding.binding for binding in descriptors.values()),
        constants=frozenset(
            spec_id
            for identifier, spec_id in _spec_ids(module).items()
            if identifier in reached and spec_id not in local_size
        ),
        uniform_offsets=frozenset(
            (descriptors[variable].binding, offset)
            for variable in uniform
            for offset in fields[variable.operands[1]]
        ),
        push_offsets=frozenset(fields[push.operands[1]]) if push else frozenset(),
    )


def binding_order(binding: ReflectedBinding) -> tuple[int, int, str, str]:
    """Sort key of bindings: by set and number; aliases of a number by kind and name."""
    return binding.set, binding.binding, binding.kind.value, binding.name


def _check_entry_point(module: Module) -> None:
    entries = module.entry_points
    if [entry.model for entry in entries] != [GL_COMPUTE]:
        shown = [f"{_STAGES.get(e.model, f'stage {e.model}')} '{e.name}'" for e in entries]
        found = f"it has {', '.join(shown[:8])}" if shown else "it has none"
        raise unreadable(module.name, f"one compute entry point is expected; {found}")


def _descriptors(module: Module, blocks: Blocks) -> list[tuple[Instruction, ReflectedBinding]]:
    """Return the variables of descriptors with what they declare, in the module's order."""
    variables = [
        variable
        for variable in module.find(Op.VARIABLE)
        if variable.operands[2] in (UNIFORM_CONSTANT, UNIFORM, STORAGE_BUFFER)
    ]
    if len(variables) > MAX_DESCRIPTORS:
        raise unreadable(module.name, f"{len(variables)} descriptors; {MAX_DESCRIPTORS} are read")
    return [(variable, _descriptor(module, blocks, variable)) for variable in variables]


def _descriptor(module: Module, blocks: Blocks, variable: Instruction) -> ReflectedBinding:
    identifier = variable.operands[1]
    set_number = module.decoration(identifier, Deco.DESCRIPTOR_SET)
    binding = module.decoration(identifier, Deco.BINDING)
    pointee = _pointee(module, variable)
    if set_number is None or binding is None:
        shown = label(module, identifier)
        raise unreadable(module.name, f"{shown} lacks a DescriptorSet or Binding decoration")
    opcode = module.definition(pointee).opcode
    if opcode == Op.TYPE_STRUCT:
        return _buffer(module, blocks, variable, pointee, (set_number, binding))
    if opcode in _OTHERS:
        raise unreadable(module.name, f"{label(module, identifier)} is {_OTHERS[opcode]}")
    sampled = opcode == Op.TYPE_SAMPLED_IMAGE
    image = module.definition(pointee).operands[1] if sampled else pointee
    dim, storage, image_format = _image(module, image, identifier)
    if sampled == storage:
        shown = label(module, identifier)
        what = "a combined image sampler of a storage image" if sampled else "a texture by itself"
        raise unreadable(module.name, f"{shown} is {what}, which shaderloom does not describe")
    return ReflectedBinding(
        set=set_number,
        binding=binding,
        name=module.names.get(identifier, ""),
        kind=Kind.STORAGE_IMAGE if storage else Kind.SAMPLED_IMAGE,
        dim=dim,
        format=image_format,
        readable=module.decoration(identifier, Deco.NON_READABLE) is None,
        writable=storage and module.decoration(identifier, Deco.NON_WRITABLE) is None,
    )


def _buffer(
    module: Module, blocks: Blocks, variable: Instruction, block: int, place: tuple[int, int]
) -> ReflectedBinding:
    identifier, storage_class = variable.operands[1:3]
    uniform = storage_class == UNIFORM and module.decoration(block, Deco.BUFFER_BLOCK) is None

    def allowed(forbidden: int) -> bool:
        # "readonly buffer" decorates each member, HLSL front ends the variable.
        on_variable = module.decoration(identifier, forbidden) is not None
        return not on_variable and not blocks.all_decorated(block, forbidden)

    return ReflectedBinding(
        set=place[0],
        binding=place[1],
        name=module.names.get(block, ""),
        kind=Kind.UNIFORM_BUFFER if uniform else Kind.STORAGE_BUFFER,
        dim="buffer",
        format="",
        readable=uniform or allowed(Deco.NON_READABLE),
        writable=not uniform and allowed(Deco.NON_WRITABLE),
        fields=blocks.fields(block) if uniform else (),
    )


def _image(module: Module, type_id: int, variable: int) -> tuple[str, bool, str]:
    """Return the dimension, whether it is a storage image, and its format."""
    found = module.definitions.get(type_id)
    if found is None or found.opcode != Op.TYPE_IMAGE or found.operands[2] not in _DIMS:
        texels = found is not None and found.opcode == Op.TYPE_IMAGE and found.operands[2] == 5
        what = "a texel buffer" if texels else "no image or buffer"
        raise unreadable(
            module.name, f"{label(module, variable)} is {what}, which shaderloom does not describe"
        )
    _, _, dim, _, arrayed, multisampled, sampled, image_format = found.operands[:8]
    if image_format >= len(_FORMATS):
        raise unreadable(module.name, f"image format {image_format} is not known")
    suffix = ("ms" if multisampled else "") + ("array" if arrayed else "")
    storage = sampled == 2
    return _DIMS[dim] + suffix, storage, _FORMATS[image_format] if storage else ""


def _push_constants(module: Module) -> Instruction | None:
    found = [v for v in module.find(Op.VARIABLE) if v.operands[2] == PUSH_CONSTANT]
    if len(found) > 1:
        raise unreadable(module.name, "more than one push constant block")
    return found[0] if found else None


def _spec_ids(module: Module) -> dict[int, int]:
    """Return the SpecId of each scalar specialization constant, by result id."""
    scalars = module.find(Op.SPEC_CONSTANT_TRUE, Op.SPEC_CONSTANT_FALSE, Op.SPEC_CONSTANT)
    found = {i.operands[1]: module.decoration(i.operands[1], Deco.SPEC_ID) for i in scalars}
    return {identifier: spec_id for identifier, spec_id in found.items() if spec_id is not None}


def _constants(module: Module, without: tuple[int, ...]) -> list[ReflectedConstant]:
    return [
        ReflectedConstant(
            spec_id, module.names.get(identifier, ""), *constant_value(module, identifier)
        )
        for identifier, spec_id in _spec_ids(module).items()
        # By number: from SPIR-V 1.6 on glslang declares the local size twice, under equal SpecIds.
        if spec_id not in without
    ]


def _local_size_ids(module: Module) -> tuple[int, ...]:
    """Return the SpecIds of the local size in the order x, y, z; fixed axes have none."""
    composites = [
        i.operands[2:]
        for i in module.find(Op.CONSTANT_COMPOSITE, Op.SPEC_CONSTANT_COMPOSITE)
        if module.decoration(i.operands[1], Deco.BUILT_IN) == BUILT_IN_WORKGROUP_SIZE
    ]
    modes = [
        i.operands[2:]
        for i in module.modes
        if i.opcode == Op.EXECUTION_MODE_ID and i.operands[1] == MODE_LOCAL_SIZE_ID
    ]
    # A WorkgroupSize built-in wins over the execution mode (section 3.21, BuiltIn).
    axes = next(iter(composites + modes), ())
    spec_ids = _spec_ids(module)
    return tuple(spec_ids[axis] for axis in axes[:3] if axis in spec_ids)


def _reached(module: Module) -> set[int]:
    """Return the ids that the function bodies use, directly or through other definitions."""
    reached: set[int] = set()
    waiting = [word for instruction in module.body for word in module.references(instruction)]
    while waiting:
        identifier = waiting.pop()
        if identifier not in reached:
            reached.add(identifier)
            definition = module.definitions.get(identifier)
            if definition is not None:
                waiting.extend(module.references(definition))
    return reached


def _accessed(module: Module, blocks: Blocks, variables: list[Instruction]) -> dict[int, set[int]]:
    """Return, per block variable, the offsets of the members that the bodies touch."""
    structs = {variable.operands[1]: _pointee(module, variable) for variable in variables}
    touched: dict[int, set[int]] = {identifier: set() for identifier in structs}
    whole: set[int] = set()
    for instruction in module.body:
        opcode, operands = instruction
        chain = opcode in (Op.ACCESS_CHAIN, Op.IN_BOUNDS_ACCESS_CHAIN) and len(operands) > 3
        if chain and operands[2] in structs:
            touched[operands[2]].add(constant_integer(module, operands[3]))
        else:
            # A load, copy or call takes all members.
            whole.update(structs.keys() & module.references(instruction))
    for identifier in whole:
        touched[identifier].update(range(len(blocks.members(structs[identifier]))))
    return {
        identifier: {blocks.offset(structs[identifier], index) for index in indices}
        for identifier, indices in touched.items()
    }


def _pointee(module: Module, variable: Instruction) -> int:
    return module.definition(variable.operands[0], Op.TYPE_POINTER).operands[2]
