"""Pickle a job for hosts that have the same packages as this one, but not the user's own modules."""

from __future__ import annotations

import pickle
import site
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

_OURS = ("alpa_explore", "alpa_explore_widgets")


def packed(value: Any) -> bytes:
    """The pickle of a value, in which functions and classes of the user's own modules are there as code.

    cloudpickle does that for a notebook and for `__main__`; here it does for every loaded module whose file is not in
    the folders of installed packages or of Python. Where such a module holds something that cannot be pickled, the
    functions are named instead, and the hosts must have their modules.
    """
    before = set(cloudpickle.list_registry_pickle_by_value())
    modules = [module for name, module in list(sys.modules.items()) if name not in before and _is_users(name, module)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        found: bytes = cloudpickle.dumps(value)
    except (pickle.PicklingError, TypeError, AttributeError):
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
        modules = []
        found = cloudpickle.dumps(value)
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
    return found


def _is_users(name: str, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    root = name.partition(".")[0]
    # A module may have put another object under its name.
    if not isinstance(module, ModuleType) or module.__name__ != name or not file or not file.endswith(".py"):
        return False
    if root in _OURS or root in sys.stdlib_module_names or root == "__main__":
        return False
    path = Path(file).resolve()
    return not any(path.is_relative_to(folder) for folder in _installed())


def _installed() -> list[Path]:
    paths = sysconfig.get_paths()
    folders = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    found = [*folders, *site.getsitepackages(), site.getusersitepackages()]
    return [Path(folder).resolve() for folder in found]
