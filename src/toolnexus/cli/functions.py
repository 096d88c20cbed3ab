"""Python functions that a person names as tools."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import re
import sys
from collections.abc import Callable, Generator, Iterable
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from toolnexus import Tool, define_tool
from toolnexus.cli.exits import Misused
from toolnexus.cli.settings import CODE_FILE, path_of
from toolnexus.errors import ConfigurationError

_IN_MODULE = re.compile(r"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<name>[^:]+)")


def load(given: str) -> list[Tool]:
    """The tools that `file.py`, `file.py:function` or `module:function` names. It runs that code.

    A file alone means the functions that it defines and its `Tool` values, unless their names begin with an underscore.
    What is named may be a list of tools too.

    Raises:
        Misused: That is no name of a function, or there is no such thing.
        ConfigurationError: The code fails, or what is there cannot be a tool.
    """
    if file := CODE_FILE.fullmatch(given):
        module = _run_file(path_of(file["file"]))
        found = _all_of(module) if file["name"] is None else _named(module, file["name"], given)
    elif named := _IN_MODULE.fullmatch(given):
        found = _named(_import(named["module"]), named["name"], given)
    else:
        raise Misused(f"{given!r} names no function. Give file.py, file.py:function or module:function.")
    tools = [_tool(each, given) for each in found]
    if not tools:
        raise Misused(f"There is no function in {given!r} whose name does not begin with an underscore.")
    return tools


def _tool(value: Any, given: str) -> Tool:
    if isinstance(value, Tool):
        return value
    if not callable(value):
        raise Misused(f"{given!r} is no function, but of the type {type(value).__name__}.")
    try:
        return define_tool(cast("Callable[..., Any]", value))
    except ConfigurationError as error:
        raise ConfigurationError(f"{given}: {error}") from error


def _run_file(path: Path) -> ModuleType:
    """Run a file as a module of its own. Its folder is not searched for what it imports, nor is compiled code read:
    what runs is what stands in the file."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise Misused(f"{str(path)!r} cannot be read: {error.strerror or error}.") from error
    name = f"toolnexus_file_{path.stem}"
    while name in sys.modules:
        name += "_"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # where annotations of dataclasses and the like are looked up
    with _running(str(path)):
        exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - what it is for
    return module


def _import(name: str) -> ModuleType:
    """A module that is installed, or in the working directory."""
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.append(here)  # at the end: nothing there takes the place of what is installed
    try:
        with _running(name):
            return importlib.import_module(name)
    finally:
        if added:
            sys.path.remove(here)


@contextlib.contextmanager
def _running(what: str) -> Generator[None]:
    """Somebody's code runs: what it prints is no answer, and what it raises is told in one line."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"{what} failed when it was loaded: {type(error).__name__}: {error}.") from error


def _named(module: ModuleType, name: str, given: str) -> list[Any]:
    try:
        value = attrgetter(name)(module)
    except AttributeError as error:
        close = difflib.get_close_matches(name, [each for each in vars(module) if not each.startswith("_")], n=1)
        meant = f" Did you mean {close[0]!r}?" if close else ""
        raise Misused(f"There is no {name!r} in {given.rpartition(':')[0]!r}.{meant}") from error
    return list(cast("Iterable[Any]", value)) if isinstance(value, list | tuple) else [value]


def _all_of(module: ModuleType) -> list[Any]:
    values = [value for name, value in vars(module).items() if not name.startswith("_")]
    return list(dict.fromkeys(each for each in values if isinstance(each, Tool) or _is_function_of(module, each)))


def _is_function_of(module: ModuleType, value: Any) -> bool:
    return callable(value) and hasattr(value, "__code__") and value.__module__ == module.__name__
