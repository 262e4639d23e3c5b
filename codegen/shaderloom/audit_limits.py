"""What every Vulkan device takes, and what a module needs beyond it.

The limits are the least that the Vulkan specification lets a device have (Required Limits):
a module within them runs anywhere. Sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from shaderloom.dtypes import ALWAYS, TRACES
from shaderloom.interface import FamilyPlan, Kind, Reflection, VariantPlan
from shaderloom.lints import Finding
from shaderloom.needs import Needs, matrices_of

MAX_PUSH_CONSTANTS = 128  # maxPushConstantsSize
MAX_UNIFORM_BLOCK = 16384  # maxUniformBufferRange
MAX_SHARED_MEMORY = 16384  # maxComputeSharedMemorySize
MAX_DESCRIPTORS = {  # maxPerStageDescriptor...
    Kind.STORAGE_BUFFER: 4,
    Kind.STORAGE_IMAGE: 4,
    Kind.UNIFORM_BUFFER: 12,
    Kind.SAMPLED_IMAGE: 16,
}

Problem = tuple[str, str, str]  # lint, message, the name of the declaration or ""


def limits(declared: Reflection, needed: Needs, shared_memory: int = 0) -> Iterator[Problem]:
    """Yield what a module declares beyond the limits; ``shared_memory`` is what it may take."""
    yield from _push_constants(declared)
    for binding in declared.bindings:
        size = max((f.offset + f.size for f in binding.fields), default=0)
        if size > MAX_UNIFORM_BLOCK:
            message = f"uniform block {binding.name} takes {size} bytes of {MAX_UNIFORM_BLOCK}"
            yield "SL013", message, binding.name
    for kind, most in MAX_DESCRIPTORS.items():
        count = sum(binding.kind is kind for binding in declared.bindings)
        if count > most:
            message = f"{count} {kind.value.replace('_', ' ')}s; a device may take only {most}"
            yield "SL014", message, ""
    allowed = max(shared_memory, MAX_SHARED_MEMORY)
    if needed.shared_memory is None:
        yield "SL018", "the size of its shared memory cannot be told", ""
    elif needed.shared_memory > allowed:
        yield "SL018", f"shared memory takes {needed.shared_memory} bytes of {allowed}", ""


def _push_constants(declared: Reflection) -> Iterator[Problem]:
    end = 0
    for field in declared.push_constants:
        scalar = min(field.size, 4)
        if scalar and field.offset % scalar:
            message = f"push constant {field.name} is at byte {field.offset}, no multiple of 4"
            yield "SL012", message, field.name
        if field.offset > end:
            message = f"push constants have a hole before {field.name}: bytes {end} to"
            yield "SL012", f"{message} {field.offset - 1}; declare a pad", field.name
        end = max(end, field.offset + field.size)
    if end > MAX_PUSH_CONSTANTS:
        yield "SL011", f"push constants take {end} bytes of {MAX_PUSH_CONSTANTS}", ""


def other_matrices(variant: VariantPlan, needed: Needs) -> Iterator[Problem]:
    """Yield when a module's cooperative matrices are not just those of the planned shape."""
    shape = variant.cooperative_matrix
    if needed.matrices != matrices_of(shape):
        found = ", ".join(sorted(needed.matrices)) or "none"
        message = f"cooperative matrices are {found}, planned {shape or 'none'}"
        yield "SL022", message, "cooperative_matrix"


def missing_requirements(variant: VariantPlan, needed: Needs) -> Iterator[Problem]:
    """Yield each capability or extension of a module that ``requires`` does not explain."""
    explained = ALWAYS.union(*(TRACES.get(name, frozenset()) for name in variant.requires))
    for name in sorted(needed.declared - explained):
        what = "extension" if name.startswith("SPV_") else "capability"
        able = sorted(extension for extension, traces in TRACES.items() if name in traces)
        hint = f"; {' or '.join(able)} would explain it" if able else ""
        yield "SL015", f"it needs the {what} {name}, and 'requires' does not say so{hint}", ""


def needless_requirements(family: FamilyPlan, needed: Sequence[Needs]) -> Iterable[Finding]:
    """Return a finding for each extension that no variant of the family shows a trace of.

    An extension without traces, which changes nothing for a device, is never needless.
    """
    shown = frozenset().union(*(needs.declared for needs in needed))
    named = {extension for variant in family.variants for extension in variant.requires}
    for extension in sorted(named):
        traces = TRACES.get(extension)
        if traces and not traces & shown:
            message = f"'requires' names {extension}, and no variant needs it"
            yield Finding(family.name, "SL016", message, family.name, about="requires")
