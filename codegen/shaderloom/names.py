"""What a name must be to live in GLSL, C, C++ and Python at once, and how C spells it."""

from __future__ import annotations

import re

MAX_NAME = 96  # "generated/glsl/NAME.comp" stays under Windows' 260 with a root of 140

# What every template is given beside the variant's axes, and what Jinja keeps for itself.
TEMPLATE_NAMES = (
    *("plan", "generated", "extensions", "interface", "headers", "poison"),
    *("caller", "loop", "self", "super"),
)

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

_C_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
    char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept not
    not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires
    restrict return short signed sizeof static static_assert static_cast struct switch template
    this thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned
    using virtual void volatile wchar_t while xor xor_eq"""
_GLSL_WORDS = """
    active atomic_uint attribute buffer cast centroid coherent common discard external filter
    fixed flat half highp hvec2 hvec3 hvec4 in inout input interface invariant layout lowp main
    mediump noinline noperspective out output packed partition patch precise precision readonly
    resource sample sampler sampler3DRect samplerShadow shared smooth subroutine superp texture
    uint uniform varying writeonly"""
# GLSL 4.60, section 3.6: uvec3, dmat2x3, isampler2DArray, texture2DMS, image3D, subpassInput, ...
_GLSL_TYPE = re.compile(
    r"[dbiuf]?vec[234]|d?mat[234](x[234])?|[iu]?subpassInput(MS)?|samplerShadow"
    r"|[iu]?(sampler|texture|image)(1D|2D|3D|Cube|2DRect|Buffer|2DMS)(Array)?(Shadow)?"
)
_PYTHON_WORDS = """
    as assert async await def del elif except finally from global import in is lambda None
    nonlocal pass raise True False with yield"""


def name_problem(name: str, prefixed: bool = False) -> str:
    """Return why ``name`` cannot be used, or ``""``.

    Names stand unchanged in GLSL and Python and are mangled into C; one rule for all
    keeps them the same everywhere. A ``prefixed`` name, such as an enum's value, is never
    spelled alone (RESIDUAL_OP_ADD), so it may be a keyword.
    """
    if not _IDENTIFIER.fullmatch(name):
        return "is not an identifier (letters, digits and _, a letter first)"
    if "__" in name or name.endswith("_"):
        return "has a double or trailing underscore, which C++ and GLSL reserve"
    if len(name) > MAX_NAME:
        return f"is {len(name)} characters long; the limit is {MAX_NAME}"
    if name.startswith("gl_"):
        return "starts with 'gl_', which GLSL reserves"
    if prefixed:
        return ""
    for words, language in (
        (_C_WORDS, "C or C++"),
        (_GLSL_WORDS, "GLSL"),
        (_PYTHON_WORDS, "Python"),
    ):
        if name in words.split():
            return f"is a keyword of {language}"
    return "is a keyword of GLSL" if _GLSL_TYPE.fullmatch(name) else ""


def operand(name: str) -> str:
    """Return the operand that a binding holds: ``t_residual`` holds ``residual``."""
    return name.removeprefix("t_")


def c_constant(*parts: str) -> str:
    """Return a C constant: ('conv2d', 'binding', 'scale') is SHADERLOOM_CONV2D_BINDING_SCALE."""
    return "_".join(("SHADERLOOM", *(snake(part).upper() for part in parts)))


def c_type(*parts: str) -> str:
    """Return a C type name: ('conv2d', 'push_constants') is shaderloom_conv2d_push_constants."""
    return "_".join(("shaderloom", *(snake(part) for part in parts)))


def snake(name: str) -> str:
    """Return ``name`` in lower snake case: ActivationOp is activation_op."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
