"""What importing costs, which names there are, and which way imports point."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import toolnexus

SOURCE = Path(toolnexus.__file__).parent
HEAVY = {"aiohttp", "pydantic", "jsonschema", "click", "rich", "sqlite3"}


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after `statement`, beyond those it starts with."""
    program = f"import sys; before = set(sys.modules); {statement}; import json; "
    program += "print(json.dumps(sorted({name.partition('.')[0] for name in set(sys.modules) - before})))"
    # -S would hide site-packages; without it, whatever its .pth files load is there before the statement.
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not loaded_by("import toolnexus") & {*HEAVY, "asyncio", "orjson"}


def test_getting_create_client_loads_no_driver_and_no_validation() -> None:
    assert not loaded_by("from toolnexus import create_client") & HEAVY


def test_making_a_client_loads_no_driver_and_no_validation() -> None:
    statement = "from toolnexus import create_client; create_client('m', base_url='http://127.0.0.1:1', style='openai')"
    assert not loaded_by(statement) & HEAVY


@pytest.mark.parametrize("name", toolnexus.__all__)
def test_every_promised_name_is_there(name: str) -> None:
    assert getattr(toolnexus, name) is not None
    assert name in dir(toolnexus)


def test_type_checkers_are_told_the_same_names() -> None:
    stub = ast.parse((SOURCE / "__init__.pyi").read_text(encoding="utf-8"))
    told = {
        (node.module, alias.name)
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.module != "typing"
        for alias in node.names
    }
    homes = {(f"toolnexus.{home}", name) for name, home in toolnexus._HOME.items()}
    assert told == homes


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'create_klient'"):
        _ = toolnexus.create_klient


# Layers from the bottom up. At run time a module imports its own layer and those below it, nothing above.
LAYERS = [
    {"errors", "providers"},
    {"_answer_json", "_checks", "_foreign", "_json", "_redaction", "_media", "_strict", "_text_calls", "_unicode"}
    | {"_selection", "clock", "messages"},
    {"events", "tools", "hooks", "telemetry", "telemetry.*"},
    {"suspension"},
    {"_reopened", "dialects", "transport", "stores", "sources"},
    {"dialects.*", "transport.*", "stores.*", "sources.*"}
    | {"_endpoint", "_invoke", "_output", "_queue", "_workers", "parts"},
    {"_answer_schema", "_answer_type"},
    {"_assembly", "_callbacks", "_constrained", "_model", "_tally", "gateway", "gateway.*", "toolkit"},
    {"_policy", "_tool_mode"},
    {"_batch"},
    {"_loop"},
    {"_turns"},
    {"_recorded", "_turns_plain"},
    {"_turns_logged"},
    {"_fallback", "_provider_rows", "_source", "_stream", "blocking", "endpoints", "options"},
    {"_engine"},
    {"conversation"},
    {"client"},
    {"in_process"},
    {"testing", "testing.*"},
    {"cli", "cli.*", "__main__"},
]
PURE = {
    *("messages", "_foreign", "_media", "_strict", "_text_calls", "_constrained", "_unicode"),
    *("tools", "events", "errors", "providers", "hooks", "dialects", "dialects.*"),
}
IMPURE = {"asyncio", "aiohttp", "io", "os", "pathlib", "random", "socket", "ssl", "threading", "time", "urllib.request"}


def module_name(path: Path) -> str:
    """`client`, `dialects.sse`; the package itself is empty."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


MODULES = {name: path for path in sorted(SOURCE.rglob("*.py")) if (name := module_name(path))}


def place(module: str) -> str:
    """The entry of the tables that a module falls under: itself, or its package's `package.*`."""
    package, dot, _ = module.partition(".")
    return f"{package}.*" if dot else module


def layer(module: str) -> int:
    [found] = [number for number, members in enumerate(LAYERS) if place(module) in members] or [None]
    assert found is not None, f"{module} has no layer: add it to LAYERS and to ARCHITECTURE.md"
    return found


def home(module: str, name: str) -> str:
    """The module that `from module import name` loads."""
    if module == "toolnexus" and name in toolnexus._HOME:
        return f"toolnexus.{toolnexus._HOME[name]}"
    below = f"{module}.{name}"
    return below if below.removeprefix("toolnexus.") in MODULES else module


@cache
def imports(module: str) -> frozenset[str]:
    """What a module imports at run time, at its top and inside functions; `toolnexus.` is kept."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, f"{module} imports relatively"
            found.update(home(node.module, alias.name) for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(MODULES[module].read_text(encoding="utf-8")))
    return frozenset(found)


def ours(module: str) -> set[str]:
    """The modules of ours that a module imports. The package itself, which holds nothing but names, is left out."""
    return {name.removeprefix("toolnexus.") for name in imports(module) if name.startswith("toolnexus.")}


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    upwards = {other for other in ours(module) if layer(other) > layer(module)}
    assert not upwards


def test_messages_know_nothing_of_ours_but_errors() -> None:
    parts = {"_foreign", "_media", "_strict", "_unicode"}
    assert set().union(*(ours(module) for module in {"messages", *parts})) <= {"errors", *parts}


@pytest.mark.parametrize("module", [module for module in MODULES if place(module) in PURE])
def test_what_decides_meaning_does_no_input_or_output(module: str) -> None:
    assert not imports(module) & IMPURE


def test_the_loop_knows_no_wire_no_store_and_no_transport() -> None:
    known = ours("_loop") | ours("_batch") | ours("_tally")
    assert not {name for name in known if name.partition(".")[0] in {"transport", "stores", "sources", "providers"}}
    assert not {name for name in known if name.startswith("dialects.")}


@pytest.mark.parametrize("module", [module for module in MODULES if place(module) in {"cli", "cli.*"}])
def test_the_command_line_is_built_on_public_names_only(module: str) -> None:
    private = {name for name in ours(module) if any(part.startswith("_") for part in name.split("."))}
    assert not {name for name in private if not name.startswith("cli.")}


def test_only_the_transport_webfetch_and_the_search_for_local_servers_import_the_http_client() -> None:
    users = {module for module in MODULES if "aiohttp" in {name.partition(".")[0] for name in imports(module)}}
    assert users == {"transport.http", "sources.builtin.webfetch", "cli.discover"}
