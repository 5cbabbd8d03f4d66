"""CUDA text of an epilogue's activation on one float; every one keeps a NaN.

An activation is computed for each result, between products and stores, so its instructions count: an exponential is one
(``ex2``), a division a reciprocal (``rcp``, 1 ulp) and a product, and a limit one ``max`` or ``min`` that keeps a NaN.
"""

from __future__ import annotations

import math

from tilesmith.codegen.cuda.gelu import gelu_body
from tilesmith.problems.epilogue import Epilogue

LONG = frozenset({"gelu", "tanh"})  # more than ten instructions
SHORT = frozenset({"none", "relu", "leaky_relu", "clamp"})  # three at most


def activate(epilogue: Epilogue, device: str, result: str, value: str = "float") -> str:
    """The function ``activate`` of one ``value``, declared with the macro ``device``; of integers none is asked for.

    ``result`` is the element type that the value is rounded to: of few bits, a shorter polynomial will do.
    """
    body = gelu_body(result) if epilogue.activation == "gelu" else _body(epilogue)
    used = "".join(text.format(device=device) for name, text in _HELPERS.items() if f"{name}(" in body)
    return f"{used}{device} {value} activate({value} v) {{\n{body}}}\n"


def _body(epilogue: Epilogue) -> str:
    return {
        "none": "  return v;\n",
        "relu": "  return at_least(v, 0.0f);\n",
        "leaky_relu": f"  return v > 0.0f ? v : v * {float_text(epilogue.slope)};\n",
        "clamp": f"  return at_most(at_least(v, {float_text(epilogue.low)}), {float_text(epilogue.high)});\n",
        "silu": _GATED.format(power="-1.44269504f * v"),
        # 0.5 * (1 + tanh(u)) is the sigmoid of 2 * u, and the power of 2 is -2 / ln(2) * u.
        "gelu_tanh": _GATED.format(power="v * fmaf(v * v, -0.102943240f, -2.30220820f)"),
        "sigmoid": "  return reciprocal(1.0f + exp2_of(-1.44269504f * v));\n",
        "tanh": _TANH,
        # The gate of a NaN is 0, and their product a NaN.
        "hardswish": "  return v * __saturatef(fmaf(v, 0.166666667f, 0.5f));\n",
        "hardsigmoid": "  return at_most(at_least(fmaf(v, 0.166666667f, 0.5f), 0.0f), 1.0f);\n",
    }[epilogue.activation]


# ``v`` times a sigmoid. Where the exponential is infinite its reciprocal is 0, and so is the result.
_GATED = "  return v * reciprocal(1.0f + exp2_of({power}));\n"
# Near 0 a minimax fit of tanh(v) / v on [0, 0.55], in powers of ``v * v``. CUDA's ``tanhf`` is alike, but also tests
# for large ``v``, where the reciprocal is 0 anyway.
_TANH = """  const float s = v * v;
  float p = fmaf(s, 0.0161903482f, -0.0525438748f);
  p = fmaf(p, s, 0.133187458f);
  p = fmaf(p, s, -0.333328426f);
  const float far = copysignf(fmaf(reciprocal(1.0f + exp2_of(2.88539008f * fabsf(v))), -2.0f, 1.0f), v);
  return if_less(fabsf(v), 0.55f, fmaf(p * s, v, v), far);
"""


def _instruction(name: str, note: str, text: str, parameters: str, operands: str, host: str) -> str:
    """A function of one instruction of GPUs, and its like on the host, where kernels are emulated."""
    return f"""{{device}} float {name}({parameters}) {{{{ // {note}
#ifdef __CUDA_ARCH__
  float r;
  asm("{text}" : "=f"(r) : {operands});
  return r;
#else
  return {host};
#endif
}}}}
"""


_ONE, _TWO = ("float a", '"f"(a)'), ("float a, float b", '"f"(a), "f"(b)')
_FOUR = ("float a, float b, float yes, float no", '"f"(a), "f"(b), "f"(yes), "f"(no)')
_HELPERS = {
    name: _instruction(name, note, text, *operands, host)
    for name, note, text, operands, host in (
        ("exp2_of", "2 ulp; 0 below the least normal number", "ex2.approx.ftz.f32 %0, %1;", _ONE, "exp2f(a)"),
        ("reciprocal", "1 ulp", "rcp.approx.ftz.f32 %0, %1;", _ONE, "1.0f / a"),
        ("at_least", "a NaN stays", "max.NaN.f32 %0, %1, %2;", _TWO, "a < b ? b : a"),
        ("at_most", "a NaN stays", "min.NaN.f32 %0, %1, %2;", _TWO, "a > b ? b : a"),
        (
            "if_less",
            "both are computed: predicates in every instruction deflate badly",
            "{{ .reg .pred p; setp.lt.f32 p, %1, %2; selp.f32 %0, %3, %4, p; }}",
            _FOUR,
            "a < b ? yes : no",
        ),
    )
}


def activate_in_double(epilogue: Epilogue) -> str:
    """``ts_activate`` of one double, for the activations that the prelude's function of that name lacks; else nothing.

    In the namespace of a kernel it hides the prelude's.
    """
    found = {
        "sigmoid": "1.0 / (1.0 + exp(-x))",
        "tanh": "tanh(x)",
        "hardswish": "x * (gate / 6.0)",
        "hardsigmoid": "gate / 6.0",
        "gelu_tanh": "x / (1.0 + exp(-1.5957691216057308 * x * (1.0 + 0.044715 * x * x)))",
    }.get(epilogue.activation)
    if found is None:
        return ""
    gate = "double gate = x + 3.0; gate = gate < 0.0 ? 0.0 : gate > 6.0 ? 6.0 : gate; " if "gate" in found else ""
    head = "__device__ inline double ts_activate(double x, ts_i64, double, double, double)"
    return f"{head} {{ {gate}return {found}; }}\n"


def float_text(value: float) -> str:
    """``value`` as a CUDA float constant."""
    if math.isinf(value):
        return f"__int_as_float(0x{'ff' if value < 0 else '7f'}800000)"
    return f"(float){value.hex()}"
