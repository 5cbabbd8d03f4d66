"""Parses a driver command into its problems."""

from __future__ import annotations

from tilesmith.errors import CommandError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver.command import DriverCommand, RunOptions, Signature
from tilesmith.problems.driver.conv_problem import conv_directions, resolve_conv
from tilesmith.problems.driver.flags import CONV_BASES, Value, flags_of
from tilesmith.problems.driver.gemm_problem import gemm_directions
from tilesmith.problems.driver.tokens import read_value, split_command


def parse_command(text: str) -> DriverCommand:
    """Parse ``[PATH/MIOpenDriver] BASE {-S VALUE | --LONG VALUE}* [# comment]``.

    Args:
        text: The command, at most 65,536 characters.

    Returns:
        The command with the resolved value of every flag, its problems, and its options.

    Raises:
        CommandError: The text does not follow the grammar, or names a problem that cannot exist. The message names the
            flag, the value and the rule.
    """
    base, given = split_command(text)
    # A flag of an axis that the problem does not have may hold any value, such as a stride of 0.
    values: dict[str, Value] = {
        flag.long: read_value(base, flag, given[flag.long], not flag.long.endswith(("_d", "_h")))
        if flag.long in given
        else flag.default
        for flag in flags_of(base)
    }
    if base in CONV_BASES:
        resolve_conv(base, values, set(given))
        signatures = conv_directions(base, values)
    else:
        for flag in flags_of(base):
            read_value(base, flag, str(values[flag.long]))
        signatures = gemm_directions(base, values)
    return DriverCommand(base, tuple(values.items()), signatures, _options(values))


def _options(values: dict[str, Value]) -> RunOptions:
    def text(name: str) -> str:
        return str(values.get(name, ""))

    return RunOptions(
        iterations=int(values["iter"]), time=values["time"] == 1, wall=int(values.get("wall", 0)),
        search=values.get("search", 0) == 1, solution=text("solution") or "-1", verify=values["verify"] == 1,
        verification_cache=text("verification_cache"), gpualloc=values.get("gpualloc", 0) == 1,
        dump_output=values.get("dump_output", 0) == 1, printconv=values.get("printconv", 1) == 1,
        in_data=text("in_data"), weights=text("weights"), in_bias=text("in_bias"), dout_data=text("dout_data"),
    )  # fmt: skip


class ConvParser:
    """Converts driver commands to signatures and back. IREE's BOO has a class of the same name."""

    @staticmethod
    def command_to_signature(command: str) -> Signature:
        """The signature of the command's first direction.

        Args:
            command: A driver command, such as ``"conv -n 1 -c 8 -H 6 -W 6 -k 8 -F 1"``.

        Raises:
            CommandError: The command does not follow the grammar, or names a problem that cannot exist.
        """
        return parse_command(command).signatures[0][1]

    @staticmethod
    def command_of(signature: ConvSignature) -> str:
        """The driver command of a signature: the inverse of ``command_to_signature``.

        Args:
            signature: The problem.

        Raises:
            CommandError: No command describes the problem, for example one with unequal padding.
        """
        from tilesmith.problems.driver.write import command_of

        return command_of(signature)


__all__ = ["CommandError", "ConvParser", "parse_command"]
