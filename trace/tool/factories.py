"""``module:function``: the user's own code makes the model."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from .errors import ToolError, first_line


def call_factory(spec: str) -> Any:
    """What ``function()`` returns; the module is looked for in the current folder first, as ``python -m`` does.

    Naming code to run is the user's word for it, so no further trust is asked for.

    Raises:
        ToolError: where module or function are missing, or one of them fails.
    """
    module_name, _, function_name = spec.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.split(".")[0] == error.name.split(".")[0]:
            raise ToolError(f"{spec}: there is no module {module_name} here or on the import path") from error
        raise ToolError(f"{spec}: {module_name} cannot be imported ({first_line(error)})") from error
    except (Exception, SystemExit) as error:
        raise ToolError(f"{spec}: {module_name} cannot be imported ({first_line(error)})") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ToolError(f"{spec}: {module_name} has no function {function_name}")
    try:
        return function()
    except (Exception, SystemExit) as error:
        raise ToolError(f"{spec}: {function_name}() failed ({first_line(error)})") from error
