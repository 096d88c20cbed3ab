"""Runs what others wrote to test MCP clients, and servers of others, against our client, at versions pinned here.

    python tests/mcp/client_suites.py [--cache FOLDER] [conformance] [npm] [fastmcp]

Where packages go and where Node comes from is as in `gateway_suites.py`. Whatever is scored has to pass; what is not
scored and fails is in `client_baseline.json` with the reason, and nothing else may.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway_suites import CLIENTS, CONFORMANCE, HERE, REVISIONS, check, main, node, npm_packages, python_with, run

from toolnexus.sources.mcp.connection import Connection
from toolnexus.sources.mcp.servers import MCPServers, connect_mcp
from toolnexus.tools import ToolContext, ToolResult

VERSION = "2026.8.31"
SERVERS = [f"@modelcontextprotocol/server-{name}@{VERSION}" for name in ("everything", "filesystem", "memory")]
CLIENT = shlex.join([sys.executable, str(HERE / "conformance_client.py")])


def conformance(cache: Path) -> None:
    """Every scenario for clients of both revisions, one after another: they are timed."""
    folder = npm_packages(cache, CONFORMANCE)
    command = [str(node() / "bin" / "node"), "node_modules/.bin/conformance"]
    baseline = json.loads((HERE / "client_baseline.json").read_text(encoding="utf-8"))
    for revision in REVISIONS:
        listed = run([*command, "list", "--requirements", revision], cache, folder).stdout
        scored, unscored = scenarios(listed)
        check(len(scored) > 10, f"client conformance {revision}: there are scenarios", listed)
        failing: set[str] = set()
        for scenario in (*scored, *unscored):
            options = ["--command", CLIENT, "--spec-version", revision, "--scenario", scenario, "--force"]
            done = run([*command, "client", *options], cache, folder)
            told = done.stdout + done.stderr
            passed = done.returncode == 0 and "OVERALL: PASSED" in told
            if scenario in scored:
                counts = " ".join(re.findall(r"^Passed: (.*)", told, re.MULTILINE))
                check(passed, f"client conformance {revision} {scenario}: {counts}", told)
            elif not passed:
                failing.add(scenario)
        known = failing == set(baseline[revision])
        what = f"what fails unscored is known, {len(unscored) - len(failing)} of {len(unscored)} pass"
        check(known, f"client conformance {revision}: {what}", str(failing))


def scenarios(listed: str) -> tuple[list[str], list[str]]:
    """The scenarios for clients, and those that are not scored, as the suite lists them."""
    required, _, reported = listed.partition("Run and reported, but never scored:")
    clients = required.partition("Client scenarios")[2]
    return re.findall(r"^ +- (\S+)", clients, re.MULTILINE), re.findall(r"- (\S+) \[client\]", reported)


class Used:
    """Servers that are called; what is not as it should be is told.

    Attributes:
        far: The progress that the last call reported.
    """

    def __init__(self, servers: MCPServers) -> None:
        self._servers = servers
        self.far: list[float | None] = []

    def __getitem__(self, name: str) -> Connection:
        return self._servers.get(name)

    async def call(self, name: str, arguments: Mapping[str, Any], expected: str, *, fails: bool = False) -> ToolResult:
        """Call a tool, which should answer with this somewhere."""
        tool = next(tool for tool in self._servers.tools() if tool.name == name)
        self.far = []
        ctx = ToolContext(tool=name, report=lambda _, fraction: self.far.append(fraction))
        result = await tool.execute(dict(arguments), ctx)
        assert isinstance(result, ToolResult)
        right = result.is_error == fails and expected in result.output
        check(right, f"{name} {'fails' if fails else 'is called'}", result.output)
        return result

    def listed(self, name: str, *tools: str) -> None:
        """These tools are among those of a server, none was dropped, and it is connected."""
        [status] = [each for each in self._servers.status() if each.name == name]
        there = {each.name for each in self._servers.tools()}
        right = status.state == "ready" and not status.dropped and there >= {f"{name}_{tool}" for tool in tools}
        check(right, f"{name} is listed: {status.server}, {status.tools} tools, {status.protocol}", str(status))


def npm(cache: Path) -> None:
    """Servers from npm."""
    binaries = npm_packages(cache, *SERVERS) / "node_modules" / ".bin"

    def entry(name: str, *arguments: str, **more: Any) -> dict[str, Any]:
        return {
            "command": str(node() / "bin" / "node"),
            "args": [str(binaries / f"mcp-server-{name}"), *arguments],
            **more,
        }

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        config = {
            "everything": entry("everything", "stdio"),
            "files": entry("filesystem", str(place)),
            "memory": entry("memory", env={"MEMORY_FILE_PATH": str(place / "memory.jsonl")}),
        }
        asyncio.run(use_npm(config, place))


async def use_npm(config: Mapping[str, Any], place: Path) -> None:
    async with await connect_mcp({"mcpServers": config}) as servers:
        used = Used(servers)
        used.listed("everything", "echo", "get-sum", "get-tiny-image")
        await used.call("everything_echo", {"message": "ahoy"}, "ahoy")
        image = await used.call("everything_get-tiny-image", {}, "image")
        check(any(part.get("type") == "image_url" for part in image.parts), "everything: an image is a part")
        structured = await used.call("everything_get-structured-content", {"location": "Chicago"}, "temperature")
        check(structured.structured is not None, "everything: structured content is kept")
        await used.call("everything_get-sum", {"a": "x", "b": 1}, "-32602", fails=True)
        await used.call("everything_trigger-long-running-operation", {"duration": 0.4, "steps": 2}, "completed")
        check(used.far == [0.5, 1.0], "everything: progress", str(used.far))
        everything = used["everything"]
        uri = "demo://resource/static/document/architecture.md"
        check(uri in [each["uri"] for each in await everything.list_resources()], "everything: resources/list")
        [text] = await everything.read_resource(uri)
        check("Architecture" in text["text"], "everything: resources/read", str(text))
        check(len(await everything.list_resource_templates()) > 1, "everything: resources/templates/list")
        prompts = [each["name"] for each in await everything.list_prompts()]
        check("args-prompt" in prompts, "everything: prompts/list", str(prompts))
        prompt = await everything.get_prompt("args-prompt", {"city": "Kiel"})
        check("Kiel" in str(prompt), "everything: prompts/get", str(prompt))
        ref = {"type": "ref/prompt", "name": "completable-prompt"}
        check(await everything.complete(ref, "department", "E") == ["Engineering"], "everything: completion")

        used.listed("files", "read_text_file", "write_file")
        path = str(place / "tide.txt")
        await used.call("files_write_file", {"path": path, "content": "high"}, "Successfully")
        await used.call("files_read_text_file", {"path": path}, "high")
        await used.call("files_read_text_file", {"path": __file__}, "Access denied", fails=True)
        check(await used["files"].list_resources() == [], "files: it has no resources")
        check(await used["files"].list_prompts() == [], "files: it has no prompts")

        used.listed("memory", "create_entities", "search_nodes")
        boat = {"name": "Undine", "entityType": "boat", "observations": ["leaks"]}
        await used.call("memory_create_entities", {"entities": [boat]}, "Undine")
        await used.call("memory_search_nodes", {"query": "leaks"}, "Undine")
        lost = {"observations": [{"entityName": "Nobody", "contents": ["gone"]}]}
        await used.call("memory_add_observations", lost, "not found", fails=True)
        [graph] = await used["memory"].read_resource("memory://knowledge-graph")
        check("Undine" in graph["text"], "memory: resources/read", str(graph))


def fastmcp(cache: Path) -> None:
    """A server made with fastmcp, over HTTP and stdio."""
    script = [str(python_with(cache, "with_fastmcp", CLIENTS["with_fastmcp"])), str(HERE / "servers/with_fastmcp.py")]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen([*script, "http", port], text=True, **pipes) as process:
        try:
            assert process.stderr is not None
            started = any("running on" in line for line in process.stderr)
            check(started, "a fastmcp server starts")
            asyncio.run(use_fastmcp({"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}))
        finally:
            process.terminate()
    asyncio.run(use_fastmcp({"command": script[0], "args": [script[1], "stdio"]}))


async def use_fastmcp(entry: Mapping[str, Any]) -> None:
    async with await connect_mcp({"mcpServers": {"harbour": entry}}) as servers:
        used = Used(servers)
        used.listed("harbour", "add", "fail", "slow")
        await used.call("harbour_add", {"a": 2, "b": 3}, "5")
        await used.call("harbour_add", {"a": "x", "b": 3}, "valid", fails=True)
        await used.call("harbour_fail", {}, "The tide is out.", fails=True)
        await used.call("harbour_slow", {}, "done")
        check(used.far == [0.5, 1.0], "harbour: progress", str(used.far))
        harbour = used["harbour"]
        check([each["uri"] for each in await harbour.list_resources()] == ["tide://today"], "harbour: resources/list")
        [text] = await harbour.read_resource("tide://today")
        check(text["text"] == "high", "harbour: resources/read", str(text))
        check([each["name"] for each in await harbour.list_prompts()] == ["ask"], "harbour: prompts/list")
        prompt = await harbour.get_prompt("ask", {"place": "Kiel"})
        check("in Kiel?" in str(prompt), "harbour: prompts/get", str(prompt))


if __name__ == "__main__":
    main(__doc__, {"conformance": conformance, "npm": npm, "fastmcp": fastmcp})
