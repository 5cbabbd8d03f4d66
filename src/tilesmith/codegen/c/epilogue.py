"""C text of ``activation(acc + bias + residual)``, for vectors and for one element, without libm.

Every activation keeps a NaN. The vector forms are within a few ulp of fp32, the scalar ones compute in fp64 to
about 1e-14.

``gelu(x) = x * phi(x)`` with the normal distribution's ``phi(-t) = exp(-t*t/2) * R(t)``. ``R`` is smooth and falls
like ``1/t``, so ``R(t) = u * P(u)`` with ``u = 1/(1 + a*t)``; working with the tail keeps the relative error small for
negative ``x`` too. The polynomials are Chebyshev fits: ``P`` for ``t`` in [0, 14] (fp32, relative error 4e-8) and
[0, 40] (fp64, 4e-16).

``silu`` and ``gelu_tanh`` are ``x`` times a sigmoid, of which the exponential of a negative number is taken: it cannot
overflow. ``tanh(t) = -m / (2 + m)`` with ``m = exp(-2*t) - 1``, made without cancellation from the parts of ``exp``.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.codegen.symbols import MARK
from tilesmith.problems.epilogue import Epilogue

# Activations with a long text: an exponential, and a division.
LONG = frozenset(("silu", "gelu", "gelu_tanh", "sigmoid", "tanh"))

# Highest power first, for |r| <= ln(2)/2.
_EXP32 = (0.0013941213100006334, 0.008375210200870016, 0.04166635163844457, 0.1666641450716956, 0.5000000047401394,
          1.0000000379432992, 1.0)  # fmt: skip
_EXP64 = (2.511015364692893e-08, 2.763279054211718e-07, 2.7557240604663896e-06, 2.4801485074105115e-05,
          0.00019841269890340666, 0.0013888888952696516, 0.00833333333331949, 0.04166666666648666, 0.1666666666666668,
          0.5000000000000019, 1.0, 1.0)  # fmt: skip
_TAIL32 = (-0.029679522004471565, 0.1465458302929172, -0.26096122829493423, 0.1650509958571293, -0.02704660826705278,
           0.10711458759705551, 0.11944491684589226, 0.13991229812533454, 0.13961871256104424)  # fmt: skip
_TAIL64 = (0.0005162422963662841, -0.004418155623680238, 0.014762902387000593, -0.01872470477392823,
           -0.021258421137593256, 0.12331997630285452, -0.23518695797848213, 0.2836222001361013, -0.25112596055650027,
           0.16408985768174403, -0.08396209862003633, 0.04167512473413644, 0.003917889288658644, 0.028479190321494114,
           0.037017315418394425, 0.0498749970089469, 0.06101212967172166, 0.07021469069930081, 0.07659686889004089,
           0.07978845780092776, 0.07978845605253214)  # fmt: skip


def vector_activation(epilogue: Epilogue) -> str:
    """Text that defines ``ts_vf @SYM@_act(ts_vf)`` (after the prelude)."""
    body = {
        "none": "  return x;\n",
        "relu": _at_least("x", "0.0f"),
        "leaky_relu": f"  return ts_select((ts_vi)(x > 0.0f), x, x * {float_text(epilogue.slope)});\n",
        "clamp": _at_least("x", float_text(epilogue.low), "x") + _at_most("x", float_text(epilogue.high)),
        "silu": _gated("x"),
        "gelu": _GELU32.replace("@POLY@", _horner(_TAIL32, "u", "f")),
        "gelu_tanh": _gated("1.59576912f * x * (1.0f + 0.044715f * x * x)"),
        "sigmoid": _gated("x", "e, ts_splat(1.0f)"),
        "tanh": _TANH32.replace("@POLY@", _horner(_EXP32[:-1], "r", "f")),
        "hardswish": _HARD32 + "  return x * (g * 0.166666667f);\n",
        "hardsigmoid": _HARD32 + "  return g * 0.166666667f;\n",
    }[epilogue.activation]
    exp = _EXP32_TEXT.replace("@POLY@", _horner(_EXP32, "r", "f")) if _uses_exp(epilogue) else ""
    over = _OVER32_TEXT if epilogue.activation in LONG else ""
    return f"{exp}{over}TS_INLINE ts_vf {MARK}_act(ts_vf x) {{\n{body}}}\n"


def scalar_activation(epilogue: Epilogue) -> str:
    """Text that defines ``double @SYM@_act1(double)``; it needs no prelude."""
    body = {
        "none": "  return x;\n",
        "relu": "  return x < 0.0 ? 0.0 : x;\n",
        "leaky_relu": f"  return x > 0.0 ? x : x * {double_text(epilogue.slope)};\n",
        "clamp": (
            f"  double low = {double_text(epilogue.low)}, high = {double_text(epilogue.high)};\n"
            "  return x < low ? low : x > high ? high : x;\n"
        ),
        "silu": f"  return x / (1.0 + {MARK}_exp1(-x));\n",
        "gelu": _GELU64.replace("@POLY@", _horner(_TAIL64, "u", "")),
        "gelu_tanh": f"  return x / (1.0 + {MARK}_exp1(-1.5957691216057308 * x * (1.0 + 0.044715 * x * x)));\n",
        "sigmoid": f"  return 1.0 / (1.0 + {MARK}_exp1(-x));\n",
        "tanh": _TANH64.replace("@POLY@", _horner(_EXP64[:-1], "r", "")),
        "hardswish": _HARD64 + "  return x * (g / 6.0);\n",
        "hardsigmoid": _HARD64 + "  return g / 6.0;\n",
    }[epilogue.activation]
    exp = _EXP64_TEXT.replace("@POLY@", _horner(_EXP64, "r", "")) if _uses_exp(epilogue) else ""
    return f"{exp}static inline double {MARK}_act1(double x) {{\n{body}}}\n"


def _uses_exp(epilogue: Epilogue) -> bool:
    return epilogue.activation in LONG and epilogue.activation != "tanh"


def _gated(gate: str, values: str = "x * e, x") -> str:
    """``x`` times the sigmoid of ``gate``; ``values`` are its numerators for a negative gate and for others."""
    return _GATED32.replace("@GATE@", gate).replace("@VALUE@", values)


def float_text(value: float) -> str:
    """``value`` as a C float constant."""
    return double_text(value) if value in (float("inf"), float("-inf")) else f"(float){double_text(value)}"


def double_text(value: float) -> str:
    """``value`` as an exact C double constant."""
    if value in (float("inf"), float("-inf")):
        return f"{'-' if value < 0 else ''}__builtin_inf()"
    return value.hex()


def _horner(coefficients: Sequence[float], name: str, suffix: str) -> str:
    text = f"{coefficients[0]!r}{suffix}"
    for value in coefficients[1:]:
        text = f"({text}) * {name} {'-' if value < 0 else '+'} {abs(value)!r}{suffix}"
    return text


def _at_least(name: str, bound: str, result: str = "") -> str:
    return _limit("max", "<", name, bound, result)


def _at_most(name: str, bound: str, result: str = "") -> str:
    return _limit("min", ">", name, bound, result)


def _limit(op: str, compare: str, name: str, bound: str, result: str) -> str:
    """One instruction where there is one: ``vmaxps`` and ``vminps`` return their second source if either is a NaN."""
    to = f"{result} =" if result else "return"
    return f"""  {{
    ts_vf b = ts_splat({bound});
#if defined(__AVX__)
    ts_vf r;
    __asm__("v{op}ps %2, %1, %0" : "=v"(r) : "v"(b), "v"({name}));
    {to} r;
#else
    {to} ts_select((ts_vi)({name} {compare} b), b, {name});
#endif
  }}
"""


# Of a number that is not positive. Without vscalefps, 2^n is made in two factors, so that results below 2^-126 come
# out right.
_EXP32_TEXT = f"""TS_INLINE ts_vf {MARK}_exp(ts_vf x) {{
{_at_least("x", "-105.0f", "x")}\
  ts_vf k = x * 1.44269504f + 12582912.0f, n = k - 12582912.0f;
  ts_vf r = (x - n * 0.693115234375f) - n * 3.1946184945309415e-05f;
  ts_vf e = @POLY@;
#if defined(__AVX512VL__)
  ts_vf y;
  __asm__("vscalefps %2, %1, %0" : "=v"(y) : "v"(e), "v"(n));
  return y;
#else
  ts_vi i = (ts_vi)k - 0x4b400000, h = i >> 1; /* k has n in its low bits */
  return e * (ts_vf)((h + 127) << 23) * (ts_vf)((i - h + 127) << 23);
#endif
}}
"""

# NOTE: a division of 64 bytes takes about 10 cycles (Zen 4), this about 4. With a `d` of 0 or Inf it would be NaN.
_OVER32_TEXT = f"""TS_INLINE ts_vf {MARK}_over(ts_vf x, ts_vf d) {{
#if defined(__AVX512VL__)
  ts_vf r;
  __asm__("vrcp14ps %1, %0" : "=v"(r) : "v"(d));
  return x * (r + r * (1.0f - d * r));
#else
  return x / d;
#endif
}}
"""

_EXP64_TEXT = f"""static inline double {MARK}_exp1(double x) {{
  if (x != x) return x;
  if (x < -750.0) return 0.0;
  if (x > 710.0) return __builtin_inf();
  int i = (int)(x * 1.4426950408889634 + (x < 0.0 ? -0.5 : 0.5)), h = i / 2;
  double n = (double)i, r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10;
  double e = @POLY@;
  unsigned long long a = (unsigned long long)(h + 1023) << 52, b = (unsigned long long)(i - h + 1023) << 52;
  double fa, fb;
  __builtin_memcpy(&fa, &a, 8);
  __builtin_memcpy(&fb, &b, 8);
  return e * fa * fb;
}}
"""

_GELU32 = f"""  ts_vf t = (ts_vf)((ts_vi)x & 0x7fffffff);
{_at_most("t", "15.0f", "t")}\
  ts_vf u = {MARK}_over(ts_splat(1.0f), 1.0f + 0.35f * t);
  ts_vf q = {MARK}_exp(-0.5f * x * x) * (u * (@POLY@));
  return x * ts_select((ts_vi)(x > 0.0f), 1.0f - q, q);
"""

_GELU64 = f"""  double t = x < 0.0 ? -x : x, u = 1.0 / (1.0 + 0.2 * t);
  double q = {MARK}_exp1(-0.5 * x * x) * (u * (@POLY@));
  return x * (x > 0.0 ? 1.0 - q : q);
"""

_GATED32 = f"""  ts_vf g = @GATE@;
  ts_vf e = {MARK}_exp((ts_vf)((ts_vi)g | (int)0x80000000));
  return {MARK}_over(ts_select((ts_vi)(g < 0.0f), @VALUE@), 1.0f + e);
"""

_TANH32 = f"""  ts_vf t = (ts_vf)((ts_vi)x & 0x7fffffff);
{_at_most("t", "10.0f", "t")}  /* beyond 9.01 it rounds to 1 */
  ts_vf k = t * -2.88539008f + 12582912.0f, n = k - 12582912.0f;
  ts_vf r = (t * -2.0f - n * 0.693115234375f) - n * 3.1946184945309415e-05f;
  ts_vf p = (ts_vf)(((ts_vi)k << 23) + 0x3f800000), m = p * (r * (@POLY@)) + (p - 1.0f);
  m = {MARK}_over(m, 2.0f + m);
  return (ts_vf)(((ts_vi)m & 0x7fffffff) | ((ts_vi)x & (int)0x80000000));
"""

_TANH64 = """  double t = x < 0.0 ? -x : x;
  if (x != x) return x;
  if (t > 20.0) return x < 0.0 ? -1.0 : 1.0;
  int i = (int)(t * -2.8853900817779268 - 0.5);
  double n = (double)i, r = (t * -2.0 - n * 0.6931471803691238) - n * 1.9082149292705877e-10, p;
  unsigned long long a = (unsigned long long)(i + 1023) << 52;
  __builtin_memcpy(&p, &a, 8);
  double m = p * (r * (@POLY@)) + (p - 1.0);
  m = m / (2.0 + m);
  return x < 0.0 ? m : -m;
"""

_HARD32 = f"""  ts_vf g = x + 3.0f;
{_at_least("g", "0.0f", "g")}{_at_most("g", "6.0f", "g")}"""

_HARD64 = """  double g = x + 3.0;
  g = g < 0.0 ? 0.0 : g > 6.0 ? 6.0 : g;
"""
