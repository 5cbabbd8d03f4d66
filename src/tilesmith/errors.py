"""One class per failure that a user can meet.

Every message is one line that names the value and the rule it breaks. The command line prints it as it is and
exits with the class's ``exit_status``. A value of any length may be named: ``shortened`` cuts long values.
"""

from __future__ import annotations

import re

LONGEST_WORD = 600  # characters that a message repeats of one value: keys of problems and most paths are shorter
LONGEST_MESSAGE = 4000
_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


def shortened(message: str) -> str:
    """``message`` without the middle of its long words and, if it is still long, without its own middle.

    What comes first names the place, and what comes last is the rule: both stay.
    """
    if len(message) <= LONGEST_WORD:
        return message
    return _cut(_LONG_WORD.sub(lambda found: _cut(found[0], LONGEST_WORD), message), LONGEST_MESSAGE)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    kept = (most - 40) // 2
    return f"{text[:kept]}...({len(text) - 2 * kept} characters left out)...{text[-kept:]}"


class TilesmithError(Exception):
    """Base of every error that Tilesmith raises on purpose."""

    exit_status = 2

    def __init__(self, *args: object) -> None:
        super().__init__(*(shortened(each) if isinstance(each, str) else each for each in args))


class ProblemError(TilesmithError, ValueError):
    """A signature that cannot exist: sizes, strides, groups, layouts or dtypes that break a rule."""


class CommandError(TilesmithError, ValueError):
    """A driver command that does not follow the grammar, or names a problem that cannot exist."""


class ArgumentError(TilesmithError, ValueError):
    """A tensor of a call with another shape, dtype, strides or device than the signature's, or a wrong option."""


class TargetError(TilesmithError, ValueError):
    """A target that does not exist, or a machine that Tilesmith does not run on."""


class EnvironmentValueError(TilesmithError, ValueError):
    """A ``TILESMITH_*`` variable with a value outside its rule."""


class FileFormatError(TilesmithError, ValueError):
    """A file that cannot be read in its format; the message names the file and the line."""


class RecordError(TilesmithError, ValueError):
    """A database record with a field outside its rule."""


class NoCompilerError(TilesmithError, RuntimeError):
    """No compiler was found; says what to install."""


class CompileError(TilesmithError, RuntimeError):
    """The compiler refused generated source."""

    exit_status = 1


class PlanError(TilesmithError, ValueError):
    """Serialised plan bytes that are damaged, of another version, or out of bounds."""


class PackageError(TilesmithError, ValueError):
    """A kernel package that is damaged, of another version, or out of bounds."""


class LaunchError(TilesmithError, RuntimeError):
    """A plan that could not be loaded or run."""

    exit_status = 1


class OutOfTimeError(LaunchError):
    """A search reached its time limit before it had an answer; its measurements are kept."""


class NoSolutionError(TilesmithError, LookupError):
    """No solver fits, or ``strict`` mode met a problem that the databases do not hold."""


class DatabaseError(TilesmithError, RuntimeError):
    """The database for the results of a search cannot be written."""


class FleetError(TilesmithError, RuntimeError):
    """A cluster that does not answer or has no usable worker, a missing package, or a message that cannot be read."""

    exit_status = 1


class InterruptedSearchError(TilesmithError, RuntimeError):
    """The user stopped a search; its measurements are kept."""

    exit_status = 130
