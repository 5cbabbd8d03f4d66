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
        "silu": "  return v / (1.0f + expf(-v));\n",
        # erfc keeps the relative error small for negative v, where 1 + erf(v) cancels.
        "gelu": "  return v * 0.5f * erfcf(-0.70710678f * v);\n",
    }[epilogue.activation]


def float_text(value: float) -> str:
    """``value`` as a CUDA float constant."""
    if math.isinf(value):
        return f"__int_as_float(0x{'ff' if value < 0 else '7f'}800000)"
    return f"(float){value.hex()}"
