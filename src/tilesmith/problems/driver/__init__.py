"""The MIOpenDriver command grammar: commands to problems and back, and the lines that a driver prints."""

from tilesmith.problems.driver.command import Direction, DriverCommand, RunOptions
from tilesmith.problems.driver.keyed import KeyedProblem, is_key, parse_problem
from tilesmith.problems.driver.listing import CommandLine, calls_of, calls_text, read_commands
from tilesmith.problems.driver.parse import ConvParser, parse_command
from tilesmith.problems.driver.write import command_of, command_or_key

__all__ = [
    "CommandLine", "ConvParser", "Direction", "DriverCommand", "KeyedProblem", "RunOptions", "calls_of",
    "calls_text", "command_of", "command_or_key", "is_key", "parse_command", "parse_problem", "read_commands",
]  # fmt: skip
