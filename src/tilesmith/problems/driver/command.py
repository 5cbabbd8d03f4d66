"""``DriverCommand``: a parsed command."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver.flags import Value
from tilesmith.problems.gemm import GemmSignature

Signature = ConvSignature | GemmSignature
Direction = tuple[str, Signature]


@dataclass(frozen=True)
class RunOptions:
    """How to run a command, apart from what it computes.

    ``solution`` is an id or a name as given (``-1``: find the best). ``wall`` counts with ``time`` alone.
    """

    iterations: int = 10
    time: bool = False
    wall: int = 0
    search: bool = False
    solution: str = "-1"
    verify: bool = False
    verification_cache: str = ""
    gpualloc: bool = False
    dump_output: bool = False
    printconv: bool = True
    in_data: str = ""
    weights: str = ""
    in_bias: str = ""
    dout_data: str = ""


@dataclass(frozen=True)
class DriverCommand:
    """One command: its name, every flag's resolved value, its problems and how to run them.

    ``signatures`` holds ``(direction, signature)`` in the order fwd, bwd, wrw, bgrad; a GEMM has ``fwd`` alone.
    """

    base: str
    values: tuple[tuple[str, Value], ...]
    signatures: tuple[Direction, ...]
    options: RunOptions

    def __getitem__(self, flag: str) -> Value:
        """The resolved value of the flag with this long name."""
        return dict(self.values)[flag]

    @property
    def is_gemm(self) -> bool:
        return self.base.startswith("gemm")

    def print(self) -> str:
        """A command that parses to the same problems and options."""
        from tilesmith.problems.driver.write import format_command

        return format_command(self.base, dict(self.values))
