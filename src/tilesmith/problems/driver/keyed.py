"""Problems named by their keys, where driver commands may stand: no command names unequal padding or a scale.

A line of oneDNN's benchdnn may stand there, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tilesmith.errors import CommandError, ProblemError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver.benchdnn import is_benchdnn, parse_benchdnn
from tilesmith.problems.driver.command import Direction, DriverCommand, RunOptions, Signature
from tilesmith.problems.driver.parse import parse_command
from tilesmith.problems.keys import parse_key

_KEY = re.compile(r"(?:conv|gemm)[0-9]+;")


@dataclass(frozen=True)
class KeyedProblem:
    """One problem that was named by its key, or those of a line of benchdnn (``further``: its second direction).

    They run with the options of a command that gives none.
    """

    signature: Signature
    options: RunOptions = field(default_factory=RunOptions)
    further: tuple[Signature, ...] = ()

    @property
    def signatures(self) -> tuple[Direction, ...]:
        """The directions and the problems, as a command has them."""
        return tuple(
            (each.mode if isinstance(each, ConvSignature) else "fwd", each) for each in (self.signature, *self.further)
        )

    def print(self) -> str:
        """The key."""
        return self.signature.key()


def is_key(text: str) -> bool:
    """Whether a text begins like a key, so that it is read as one."""
    return _KEY.match(text.lstrip()) is not None


def parse_problem(text: str) -> DriverCommand | KeyedProblem:
    """Parse a driver command, the key of one problem, or a line of benchdnn; ``# comment`` may follow each.

    Args:
        text: The command, the key or the line, at most 65,536 characters.

    Returns:
        Its problems and how to run them.

    Raises:
        CommandError: The text is none of them, or names a problem that cannot exist. The message names the rule.
    """
    if not is_key(text) and not is_benchdnn(text):
        return parse_command(text)
    try:
        if is_benchdnn(text):
            first, *further = parse_benchdnn(text)
            return KeyedProblem(first, further=tuple(further))
        return KeyedProblem(parse_key(text.partition("#")[0].strip()))
    except ProblemError as error:
        raise CommandError(str(error)) from None
