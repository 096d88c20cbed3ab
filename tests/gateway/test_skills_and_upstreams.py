"""Skills as resources, and what servers behind the gateway have."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from gateways import ERAS, PING, connected, post, served
from mcp import MCPError, types

from toolnexus import SkillDef, ToolContext, suspend
from toolnexus.gateway.upstreams import ServerBehind
from toolnexus.sources.skills.collection import discover_skills

FILES = {
    "git/SKILL.md": "---\nname: git\ndescription: Branch.\nmetadata:\n  version: 1.0\n  beta: true\n---\n# Git\n",
    "forms/SKILL.md": "\ufeff---\r\nname: forms\r\ndescription: 'Fill in: forms'\r\n---\r\nFill.\r\n",
    "forms/references/A b.md": "# A\n",
    "forms/assets/dot.bin": b"\x00\xff",
    "forms/.hidden": "secret",
    "Other Name/SKILL.md": "---\nname: Other Name\ndescription: Not as the extension wants it.\n---\nx\n",
}


@pytest.fixture
def skills(tmp_path: Path) -> Any:
    for name, text in FILES.items():
        path = tmp_path / "skills" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    (tmp_path / "outside.md").write_text("outside")
    (tmp_path / "skills/forms/link.md").symlink_to(tmp_path / "outside.md")
    data = SkillDef(name="told", description='As "data": yes', body="Do it.\n", metadata={"license": "MIT"})
    return asyncio.run(discover_skills(tmp_path / "skills", data))


async def modern(url: str, method: str, **params: Any) -> Any:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    body = {**PING, "method": method, "params": {**params, "_meta": meta}}
    name = {"mcp_name": params["uri"]} if method == "resources/read" else {}
    return (await post(url, body, mcp_protocol_version="2026-07-28", mcp_method=method, **name)).json


@pytest.mark.parametrize("era", ERAS)
async def test_skills_are_resources(era: str, skills: Any) -> None:
    async with connected(era, [], skills=skills) as (client, _):
        listed = {str(each.uri): each for each in (await client.list_resources()).resources}
        assert set(listed) == {
            "skill://told/SKILL.md",
            "skill://git/SKILL.md",
            "skill://forms/SKILL.md",
            "skill://Other%20Name/SKILL.md",
        }
        assert listed["skill://git/SKILL.md"].name == "git"
        assert listed["skill://git/SKILL.md"].mime_type == "text/markdown"
        [content] = (await client.read_resource("skill://forms/SKILL.md")).contents
        assert content.text == FILES["forms/SKILL.md"]
        [content] = (await client.read_resource("skill://forms/references/A%20b.md")).contents
        assert (content.text, content.mime_type) == ("# A\n", "text/markdown")
        [content] = (await client.read_resource("skill://forms/assets/dot.bin")).contents
        assert content.blob == "AP8="
        [content] = (await client.read_resource("skill://told/SKILL.md")).contents
        assert content.text == '---\nlicense: "MIT"\nname: "told"\ndescription: "As \\"data\\": yes"\n---\n\nDo it.\n'


@pytest.mark.parametrize(
    "uri",
    [
        "skill://nobody/SKILL.md",
        "skill://forms",
        "skill://forms/",
        "skill://forms/.hidden",
        "skill://forms/link.md",
        "skill://forms/../git/SKILL.md",
        "skill://forms/..%2F..%2Foutside.md",
        "skill://forms/references",
        "skill://told/other.md",
        "file:///etc/passwd",
    ],
)
async def test_what_is_no_file_of_a_skill_is_not_read(uri: str, skills: Any) -> None:
    async with connected("legacy", [], skills=skills) as (client, _):
        with pytest.raises(MCPError, match="Resource not found") as raised:
            await client.read_resource(uri)
    assert raised.value.data == {"uri": uri}


async def test_the_extension_lists_skills_with_the_digest_of_each_file(skills: Any) -> None:
    async with served([], skills=skills) as url:
        found = await modern(url, "server/discover")
        assert found["result"]["capabilities"]["extensions"] == {
            "io.modelcontextprotocol/skills": {"directoryRead": True}
        }
        result = (await modern(url, "skills/list"))["result"]
        entries = {entry["frontmatter"]["name"]: entry for entry in result["skills"]}
        assert set(entries) == {"told", "git", "forms"}
        assert entries["git"]["frontmatter"] == {
            "name": "git",
            "description": "Branch.",
            "metadata": {"version": 1.0, "beta": True},
        }
        assert entries["told"]["frontmatter"] == {"license": "MIT", "name": "told", "description": 'As "data": yes'}
        files = {each["uri"]: each for entry in entries.values() for each in entry["resources"]}
        assert set(files) == {
            "skill://told/SKILL.md",
            "skill://git/SKILL.md",
            "skill://forms/SKILL.md",
            "skill://forms/references/A%20b.md",
            "skill://forms/assets/dot.bin",
        }
        for uri, each in files.items():
            [content] = (await modern(url, "resources/read", uri=uri))["result"]["contents"]
            data = content["text"].encode() if "text" in content else b"\x00\xff"
            assert (each["size"], each["digest"]) == (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}")
        assert (await modern(url, "skills/get", uri="skill://forms/SKILL.md"))["result"]["skill"] == entries["forms"]
        assert (await modern(url, "skills/get", uri="skill://x/SKILL.md"))["error"]["code"] == -32602


async def test_a_file_that_changed_has_another_digest(skills: Any, tmp_path: Path) -> None:
    async with served([], skills=skills) as url:
        before = (await modern(url, "skills/get", uri="skill://git/SKILL.md"))["result"]["skill"]["resources"]
        (tmp_path / "skills/git/SKILL.md").write_text(f"{FILES['git/SKILL.md']}More.\n")
        after = (await modern(url, "skills/get", uri="skill://git/SKILL.md"))["result"]["skill"]["resources"]
    assert before != after


async def test_folders_of_skills_can_be_read(skills: Any) -> None:
    async with served([], skills=skills) as url:
        top = (await modern(url, "resources/directory/read", uri="skill://forms"))["result"]["resources"]
        assert {each["name"]: each["mimeType"] for each in top} == {
            "SKILL.md": "text/markdown",
            "references": "inode/directory",
            "assets": "inode/directory",
        }
        [inside] = (await modern(url, "resources/directory/read", uri="skill://forms/references"))["result"][
            "resources"
        ]
        assert inside["uri"] == "skill://forms/references/A%20b.md"
        for uri in ("skill://forms/SKILL.md", "skill://nobody", "skill://forms/nothing"):
            assert (await modern(url, "resources/directory/read", uri=uri))["error"]["code"] == -32602


class Behind:
    """A server behind the gateway."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.watched: list[tuple[str, bool]] = []

    async def list_resources(self) -> list[dict[str, Any]]:
        return [{"uri": "x://shared", "name": self.name}, {"uri": f"x://{self.name}", "name": self.name}]

    async def list_resource_templates(self) -> list[dict[str, Any]]:
        return [{"uriTemplate": f"x://{self.name}/{{id}}", "name": self.name}]

    async def read_resource(self, uri: str, ctx: ToolContext) -> dict[str, Any] | None:
        known = uri in ("x://shared", f"x://{self.name}")
        return {"contents": [{"uri": uri, "text": self.name}]} if known else None

    async def list_prompts(self) -> list[dict[str, Any]]:
        return [{"name": f"{self.name}_hello", "arguments": [{"name": "who", "required": True}]}]

    async def get_prompt(self, name: str, arguments: Mapping[str, str], ctx: ToolContext) -> dict[str, Any] | None:
        if name != f"{self.name}_hello":
            return None
        if ctx.answer is None and arguments["who"] == "?":
            suspend("elicitation", "Who?", data={"schema": {"type": "object", "properties": {}}})
        who = arguments["who"] if ctx.answer is None else ctx.answer["data"]["who"]
        return {"messages": [{"role": "user", "content": {"type": "text", "text": f"Hello, {who}"}}]}

    async def complete(self, params: dict[str, Any]) -> dict[str, Any] | None:
        known = params["ref"].get("name") == f"{self.name}_hello"
        return {"completion": {"values": [self.name]}} if known else None

    async def watch(self, uri: str, wanted: bool) -> None:
        self.watched.append((uri, wanted))


class Broken(Behind):
    async def list_resources(self) -> list[dict[str, Any]]:
        raise RuntimeError("gone")


@pytest.mark.parametrize("era", ERAS)
async def test_resources_and_prompts_of_servers_behind_are_passed_on(era: str, skills: Any) -> None:
    upstreams = [Broken("broken"), Behind("one"), Behind("two")]
    async with connected(era, [], skills=skills, upstreams=upstreams) as (client, _):
        uris = [str(each.uri) for each in (await client.list_resources()).resources]
        assert uris[-3:] == ["x://shared", "x://one", "x://two"]
        assert uris[0].startswith("skill://")
        assert len((await client.list_resource_templates()).resource_templates) == 3
        assert (await client.read_resource("x://two")).contents[0].text == "two"
        assert [each.name for each in (await client.list_prompts()).prompts] == [
            "broken_hello",
            "one_hello",
            "two_hello",
        ]
        told = await client.get_prompt("two_hello", {"who": "Ada"})
        assert told.messages[0].content.text == "Hello, Ada"
        with pytest.raises(MCPError, match="There is no prompt 'three_hello'"):
            await client.get_prompt("three_hello", {})
        asked = types.PromptReference(name="two_hello")
        assert (await client.complete(asked, {"name": "who", "value": ""})).completion.values == ["two"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_prompt_may_ask_as_well(era: str) -> None:
    async def person(_: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"who": "Eve"})

    async with connected(era, [], upstreams=[Behind("one")], elicitation_callback=person) as (client, _):
        told = await client.get_prompt("one_hello", {"who": "?"})
    assert told.messages[0].content.text == "Hello, Eve"


@pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")
async def test_a_client_that_watches_a_resource_is_told_when_it_changes() -> None:
    heard: list[str] = []

    async def hear(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.append(str(message.params.uri))

    behind = Behind("one")
    async with connected("legacy", [], upstreams=[behind], message_handler=hear) as (client, gateway):
        await client.session.subscribe_resource("x://one")
        await gateway.resource_updated("x://other")
        await gateway.resource_updated("x://one")
        await client.session.unsubscribe_resource("x://one")
        await gateway.resource_updated("x://one")
        await client.list_prompts()
    assert heard == ["x://one"]
    assert behind.watched == [("x://one", True), ("x://one", False)]


async def test_without_skills_and_upstreams_nothing_of_them_is_offered() -> None:
    async with served([]) as url:
        found = (await modern(url, "server/discover"))["result"]["capabilities"]
        assert json.dumps(found).count("prompts") == json.dumps(found).count("resources") == 0
        assert (await modern(url, "skills/list"))["error"]["code"] == -32601


class Connection:
    """What `toolkit.mcp(name)` gives."""

    name = "docs"
    capabilities: Mapping[str, Any] = {"resources": {}, "prompts": {}, "completions": {}}

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def list_resources(self) -> list[dict[str, Any]]:
        return [{"uri": "docs://a", "name": "a"}]

    async def list_resource_templates(self) -> list[dict[str, Any]]:
        return [{"uriTemplate": "docs://by-id/{id}", "name": "by id"}]

    async def list_prompts(self) -> list[dict[str, Any]]:
        return [{"name": "review"}]

    async def read_resource(self, uri: str) -> list[dict[str, Any]]:
        self.asked.append(uri)
        return [{"uri": uri, "text": "content"}]

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> dict[str, Any]:
        self.asked.append((name, arguments))
        return {"messages": []}

    async def complete(self, ref: Any, name: str, value: str, *, context: Any = None) -> list[str]:
        self.asked.append((ref, name, value, context))
        return ["x"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_connection_to_a_server_is_passed_on_and_asked_only_for_what_it_has(era: str) -> None:
    behind = Connection()
    async with connected(era, [], upstreams=[ServerBehind(behind)]) as (client, _):
        assert (await client.read_resource("docs://a")).contents[0].text == "content"
        assert (await client.read_resource("docs://by-id/7")).contents[0].text == "content"
        with pytest.raises(MCPError, match="Resource not found"):
            await client.read_resource("file:///etc/passwd")
        assert [each.name for each in (await client.list_prompts()).prompts] == ["docs_review"]
        await client.get_prompt("docs_review", {"a": "b"})
        with pytest.raises(MCPError, match="There is no prompt"):
            await client.get_prompt("review", {})
        asked = types.PromptReference(name="docs_review")
        assert (await client.complete(asked, {"name": "a", "value": "v"})).completion.values == ["x"]
    ref = {"type": "ref/prompt", "name": "review"}
    assert behind.asked == ["docs://a", "docs://by-id/7", ("review", {"a": "b"}), (ref, "a", "v", None)]


async def test_a_server_that_has_nothing_of_the_kind_is_not_asked() -> None:
    class Bare(Connection):
        capabilities: Mapping[str, Any] = {}

    async with connected("legacy", [], upstreams=[ServerBehind(Bare())]) as (client, _):
        assert (await client.list_resources()).resources == []
        assert (await client.list_prompts()).prompts == []
