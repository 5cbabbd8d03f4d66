"""Search spaces, strategies, the measuring processes, and the session that writes the databases.

``tilesmith.tune`` is this package and the public function ``tune`` (``tilesmith.ready.tuning``) at once.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """The package, called as the public function of its name.

    NOTE: the import system sets ``tilesmith.tune`` to this package whenever something imports a module of it, over any
    function that stands there. So the function cannot be an attribute of ``tilesmith``; the package itself is called,
    and ``import tilesmith.tune.session`` works as ever. The name ``tilesmith._public`` finds the function, as this
    folder imports none below it.
    """

    def __call__(self, *args: Any, **options: Any) -> Any:
        return import_module("tilesmith")._public("tune")(*args, **options)

    @property
    def __signature__(self) -> Any:
        """The signature that ``inspect.signature`` and ``help`` show."""
        from inspect import signature

        return signature(import_module("tilesmith")._public("tune"))


sys.modules[__name__].__class__ = _CallablePackage
