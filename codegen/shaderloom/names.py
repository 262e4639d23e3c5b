"""What a name must be to live in GLSL, C, C++ and Python at once, and how C spells it."""

from __future__ import annotations

import re

MAX_NAME = 96  # "generated/glsl/NAME.comp" stays under Windows' 260 with a root of 140

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

_C_WORDS = """
    alignas alignof and asm auto bitand bitor bool break case catch char class compl concept
    const constexpr continue decltype default delete do double else enum explicit export extern
    false float for friend goto if inline int long mutable namespace new noexcept not nullptr
    operator or private protected public register requires restrict return short signed sizeof
    static struct switch template this throw true try typedef typeid typename union unsigned
    using virtual void volatile wchar_t while xor"""
_GLSL_WORDS = """
    active attribute buffer centroid coherent common discard filter fixed flat half highp
    image1D image2D image3D in inout input interface invariant ivec2 ivec3 ivec4 layout lowp main
    mat2 mat3 mat4 mediump noperspective out output packed partition patch precise precision
    readonly resource sample sampler sampler2D sampler3D shared smooth subroutine superp texture
    uint uniform uvec2 uvec3 uvec4 varying vec2 vec3 vec4 writeonly"""
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
    return ""


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
