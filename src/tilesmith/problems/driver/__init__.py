"""The MIOpenDriver command grammar: commands to problems and back, and the lines that a driver prints."""

from tilesmith.problems.driver.command import Direction, DriverCommand, RunOptions
from tilesmith.problems.driver.parse import CommandLine, ConvParser, parse_command, read_commands
from tilesmith.problems.driver.write import command_of, command_or_key

__all__ = [
    "CommandLine", "ConvParser", "Direction", "DriverCommand", "RunOptions", "command_of", "command_or_key",
    "parse_command", "read_commands",
]  # fmt: skip
