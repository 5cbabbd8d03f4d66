"""The registers of processors that multiply matrix tiles (Intel's AMX), as bf16 fills them."""

from __future__ import annotations

PIXELS = 16  # rows of a register
DEEP = 32  # bf16 in each of them: what one instruction reduces
WIDE = 16  # fp32 in each of them: channels of results
REGISTER = 1024  # bytes
REGISTERS = 8
