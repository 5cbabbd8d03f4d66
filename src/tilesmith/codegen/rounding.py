"""Narrowing a double with one rounding, to nearest even: the text that C and CUDA kernels share."""

from __future__ import annotations

_BODY = """  const @U32@ sign = (@U32@)(bits >> 63) << (m + e);
  const int expo = (int)((bits >> 52) & 0x7ff) - 1023;
  const @U32@ top = (1u << e) - 1, not_a_number = sign | top << m | (inf ? 1u << (m - 1) : (1u << m) - 1);
  if (v != v)
    return not_a_number;
  if (expo == 1024)
    return inf ? sign | top << m : not_a_number;
  int drop = 52 - m; /* low bits that do not fit; more of them below the smallest normal number */
  if (expo < 1 - bias)
    drop += 1 - bias - expo;
  if (drop > 54)
    return sign;
  const @U64@ mant = (bits & 0xfffffffffffff@S@) | 0x10000000000000@S@;
  const @U64@ half = (@U64@)1 << (drop - 1), rest = mant & ((half << 1) - 1);
  @U64@ kept = mant >> drop;
  kept += rest > half || (rest == half && (kept & 1));
  /* A carry out of the mantissa goes on into the exponent, as it should. */
  const @U64@ whole = expo < 1 - bias ? kept : kept + ((@U64@)(expo + bias - 1) << m);
  const @U64@ limit = inf ? (@U64@)top << m : ((@U64@)top << m | ((1u << m) - 1));
  return whole >= limit ? (inf ? sign | top << m : not_a_number) : sign | (@U32@)whole;
"""


def rounding_text(u64: str, u32: str, suffix: str) -> str:
    """The rest of a function that has ``bits``, those of the double ``v``, and the target type's ``m`` mantissa bits,
    ``e`` exponent bits, ``bias`` and ``inf``, whether it has infinities: it returns the narrowed bits.

    ``u64`` and ``u32`` are the language's unsigned types, ``suffix`` that of constants of 64 bits.
    """
    return _BODY.replace("@U64@", u64).replace("@U32@", u32).replace("@S@", suffix)
