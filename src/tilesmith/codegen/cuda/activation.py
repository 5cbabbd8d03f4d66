"""CUDA text of an epilogue's activation on one float; every one keeps a NaN."""

from __future__ import annotations

import math

from tilesmith.problems.epilogue import Epilogue


def activate(epilogue: Epilogue, device: str) -> str:
    """The function ``activate`` of one float, declared with the macro ``device``."""
    return f"{device} float activate(float v) {{\n{activation_body(epilogue)}}}\n"


def activation_body(epilogue: Epilogue) -> str:
    """The body of ``float activate(float v)``."""
    return {
        "none": "  return v;\n",
        "relu": "  return v < 0.0f ? 0.0f : v;\n",
        "leaky_relu": f"  return v > 0.0f ? v : v * {float_text(epilogue.slope)};\n",
        "clamp": (
            f"  const float low = {float_text(epilogue.low)}, high = {float_text(epilogue.high)};\n"
            "  return v < low ? low : v > high ? high : v;\n"
        ),
        "silu": _GATED.format(gate="v"),
        # erfc keeps the relative error small for negative v, where 1 + erf(v) cancels.
        "gelu": "  return v * 0.5f * erfcf(-0.70710678f * v);\n",
        # 0.5 * (1 + tanh(u)) is the sigmoid of 2 * u.
        "gelu_tanh": _GATED.format(gate="1.59576912f * v * (1.0f + 0.044715f * v * v)"),
        "sigmoid": "  return 1.0f / (1.0f + expf(-v));\n",
        "tanh": "  return tanhf(v);\n",
        "hardswish": f"{_HARD}  return v * (gate * 0.166666667f);\n",
        "hardsigmoid": f"{_HARD}  return gate * 0.166666667f;\n",
    }[epilogue.activation]


# ``v`` times the sigmoid of ``gate``; the exponential of a negative number cannot overflow.
_GATED = """  const float gate = {gate}, e = expf(-fabsf(gate));
  return (gate < 0.0f ? v * e : v) / (1.0f + e);
"""
_HARD = """  float gate = v + 3.0f;
  gate = gate < 0.0f ? 0.0f : gate > 6.0f ? 6.0f : gate;
"""


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
