"""C text for pairs of bf16 in vectors of 64 bytes: turning 16 x 16 of them, and noting those that are not finite."""

from __future__ import annotations

from tilesmith.codegen.symbols import MARK
from tilesmith.solvers.c.common.text import PICK, pick

_SIDE = 16


def _swaps() -> str:
    """Blocks of 8, 4, 2 and 1 on either side of the diagonal change places."""
    lines = []
    for apart in (8, 4, 2, 1):
        low = [j if not j & apart else _SIDE + j - apart for j in range(_SIDE)]
        high = [j + apart if not j & apart else _SIDE + j for j in range(_SIDE)]
        for i in (i for i in range(_SIDE) if not i & apart):
            a, b = f"m[{i}]", f"m[{i + apart}]"
            lines.append(f"  t = {pick(a, b, low)}; {b} = {pick(a, b, high)}; {a} = t;")
    return "\n".join(lines)


# ``@SYM@_turned(m)``: element j of vector i of ``m[16]`` becomes element i of vector j.
TURNED = f"""{PICK}TS_NOINLINE void {MARK}_turned(ts_vi *m) {{
  ts_vi t;
{_swaps()}
}}
"""

# ``@SYM@_look(v, &bad)``: a lane of ``bad`` is not 0 where an element of a pair is not finite.
LOOK = f"""TS_INLINE void {MARK}_look(ts_vu v, ts_vi *bad) {{
  *bad |= (ts_vi)((v & 0x7f80u) == 0x7f80u) | (ts_vi)((v & 0x7f800000u) == 0x7f800000u);
}}
"""

# Writes 1 to the int32 of the kernel's second pointer.
NOTE = f"""  int any = 0;
  for (int i = 0; i < {_SIDE}; i++) any |= bad[i];
  if (any) *(volatile int *)p[1] = 1;
"""
