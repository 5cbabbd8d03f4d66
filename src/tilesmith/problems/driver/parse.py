"""From a command to its problems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tilesmith.errors import CommandError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver.command import DriverCommand, RunOptions, Signature
from tilesmith.problems.driver.conv_problem import conv_directions, resolve_conv
from tilesmith.problems.driver.flags import CONV_BASES, Value, flags_of
from tilesmith.problems.driver.gemm_problem import gemm_directions
from tilesmith.problems.driver.tokens import read_value, split_command
from tilesmith.problems.limits import MAX_FILE
from tilesmith.reading import read_named


def parse_command(text: str) -> DriverCommand:
    """Read ``[PATH/MIOpenDriver] BASE {-S VALUE | --LONG VALUE}* [# comment]``.

    Raises ``CommandError``, which names the flag, the value and the rule, for anything else.
    """
    base, given = split_command(text)
    # Flags of axes that a problem does not have may hold anything, such as a stride of 0.
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
    """The name that users of IREE's BOO know."""

    @staticmethod
    def command_to_signature(command: str) -> Signature:
        """The signature of the command's first direction."""
        return parse_command(command).signatures[0][1]

    @staticmethod
    def command_of(signature: ConvSignature) -> str:
        """The inverse of ``command_to_signature``."""
        from tilesmith.problems.driver.write import command_of

        return command_of(signature)


__all__ = ["CommandError", "ConvParser", "parse_command"]


class CommandLine(NamedTuple):
    """One line of a file: what it says, or why it cannot be read. Exactly one of ``command`` and ``error`` is None."""

    number: int
    text: str
    command: DriverCommand | None
    error: CommandError | None


def read_commands(path: Path | str) -> Iterator[CommandLine]:
    """Every command of a file with its line number; a bad line is an item with its error, and the rest still follows.

    Raises ``FileFormatError`` when the file itself cannot be read, or is far too large for a list.
    """
    return _lines(str(path), read_named(path, MAX_FILE))


def _lines(path: str, raw: bytes) -> Iterator[CommandLine]:
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        text = line.decode("utf-8", "replace").strip()
        if not text or text.startswith("#"):
            continue
        try:
            if "\ufffd" in text or "\0" in text:
                raise CommandError("the line is not UTF-8 text")
            yield CommandLine(number, text, parse_command(text), None)
        except CommandError as error:
            yield CommandLine(number, text, None, CommandError(f"{path}:{number}: {error}"))
