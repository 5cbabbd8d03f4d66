"""One class per failure that a user can meet.

Every message is one line that names the value and the rule it breaks. The command line prints it as it is and
exits with the class's ``exit_status``.
"""

from __future__ import annotations


class TilesmithError(Exception):
    """Base of every error that Tilesmith raises on purpose."""

    exit_status = 2


class ProblemError(TilesmithError, ValueError):
    """A signature that cannot exist: sizes, strides, groups, layouts or dtypes that break a rule."""


class CommandError(TilesmithError, ValueError):
    """A driver command that does not follow the grammar, or names a problem that cannot exist."""


class ArgumentError(TilesmithError, ValueError):
    """Tensors at a call that are not what the signature says: shape, dtype, strides or device."""


class TargetError(TilesmithError, ValueError):
    """A target that does not exist, or a machine that Tilesmith does not run on."""


class EnvironmentValueError(TilesmithError, ValueError):
    """A ``TILESMITH_*`` variable with a value outside its rule."""


class FileFormatError(TilesmithError, ValueError):
    """A file that cannot be read as what it should be; names the file and the line."""


class NoCompilerError(TilesmithError, RuntimeError):
    """No compiler was found; says what to install."""


class CompileError(TilesmithError, RuntimeError):
    """The compiler refused generated source."""

    exit_status = 1


class PlanError(TilesmithError, ValueError):
    """Serialised plan bytes that are damaged, of another version, or out of bounds."""


class LaunchError(TilesmithError, RuntimeError):
    """A plan that could not be loaded or run."""

    exit_status = 1


class NoSolutionError(TilesmithError, LookupError):
    """No solver fits, or ``strict`` mode met a problem that the databases do not hold."""


class DatabaseError(TilesmithError, RuntimeError):
    """The database that should keep what a search finds cannot be written."""


class InterruptedSearchError(TilesmithError, RuntimeError):
    """A search was stopped by the user; what it had found is kept."""

    exit_status = 130
