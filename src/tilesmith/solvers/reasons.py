"""The catalogue of refusals: every ``Rejected.reason`` is one of these."""

from __future__ import annotations

OP = "not this solver's operation"
DIRECTION = "direction not covered"
DTYPE = "dtype not covered"
LAYOUT = "layout not read"
UNCHANGED = "no layout to change"
GROUPS = "group width not covered"
CHANNELS = "more channels than the kernel holds"
FILTER = "filter size not covered"
STRIDE = "stride not covered"
DILATION = "dilation not covered"
EPILOGUE = "epilogue not covered"
FEATURE = "feature not covered"
TARGET = "the target lacks an instruction"
WORKSPACE = "more workspace than the limit"
SIZE = "too large for the kernel's index type"
