"""Properties that are computed when they are first asked for."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    cached_property = functools.cached_property
else:

    class cached_property(functools.cached_property):
        """``functools.cached_property`` without its lock: threads that ask at once may each compute the same value.

        NOTE: before Python 3.12 each property of a class has one lock for all of its objects. That lock took a third of
        the time of an estimate, which makes some 30,000 values for each problem.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value
