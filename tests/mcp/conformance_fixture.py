"""A gateway of tools, resources and prompts with the names that the MCP conformance suite expects.

python tests/mcp/conformance_fixture.py [http|stdio] [port]
"""

from __future__ import annotations

import asyncio
import base64
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from toolnexus import Tool, ToolContext, ToolResult, create_toolkit, suspend
from toolnexus.gateway.server import Gateway
from toolnexus.gateway.serving import serve_mcp
from toolnexus.sources.skills.collection import Skills, discover_skills

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = base64.b64encode(
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\0\0\0\0"
).decode()
SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def test_simple_text() -> str:
    """Text."""
    return "This is a simple text response for testing."


def test_image_content() -> dict[str, Any]:
    """An image."""
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}


def test_audio_content() -> dict[str, Any]:
    """A sound."""
    return {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}


def test_embedded_resource() -> dict[str, Any]:
    """A resource in a result."""
    text = "This is an embedded resource content."
    return {"type": "resource", "resource": {"uri": "test://embedded-resource", "mimeType": "text/plain", "text": text}}


def test_multiple_content_types() -> list[Any]:
    """Several things in a result."""
    data = '{"test":"data","value":123}'
    resource = {"uri": "test://mixed-content-resource", "mimeType": "application/json", "text": data}
    return ["Multiple content types test:", test_image_content(), {"type": "resource", "resource": resource}]


async def test_tool_with_logging(ctx: ToolContext) -> str:
    """Says what it does."""
    for step in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.progress(step)
        await asyncio.sleep(0.05)
    return "Said."


async def test_logging_tool(ctx: ToolContext) -> str:
    """Says what it does."""
    return await test_tool_with_logging(ctx)


def test_error_handling() -> str:
    """Fails."""
    raise RuntimeError("This tool intentionally returns an error for testing")


async def test_tool_with_progress(ctx: ToolContext) -> str:
    """Tells how far it is."""
    for done in (0.0, 0.5, 1.0):
        ctx.progress("", done)
        await asyncio.sleep(0.05)
    return "Done."


def test_sampling(prompt: str, ctx: ToolContext) -> str:
    """Asks the client's model."""
    if ctx.answer is None:
        suspend("sampling", "A model is needed.", data=sampled(prompt, 100))
    return f"LLM response: {ctx.answer['data']['content']['text']}"


def test_missing_capability(ctx: ToolContext) -> str:
    """Needs the client's model."""
    return test_sampling("Hello", ctx)


def sampled(text: str, most: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}], "maxTokens": most}


def form(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def elicited(ctx: ToolContext, message: str, schema: Mapping[str, Any]) -> str:
    if ctx.answer is None:
        suspend("elicitation", message, data={"schema": schema})
    return f"action=accept, content={ctx.answer['data']}"


def test_elicitation(message: str, ctx: ToolContext) -> str:
    """Asks a person."""
    text = {"type": "string"}
    return "User response: " + elicited(ctx, message, form(username=text, email=text))


def test_streaming_elicitation(ctx: ToolContext) -> str:
    """Asks a person, and says so before."""
    ctx.progress("asking")
    return elicited(ctx, "What is your name?", form(name={"type": "string"}))


def test_elicitation_sep1034_defaults(ctx: ToolContext) -> str:
    """Asks with defaults."""
    properties: dict[str, Any] = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return "Elicitation completed: " + elicited(ctx, "Who are you?", {"type": "object", "properties": properties})


def test_elicitation_sep1330_enums(ctx: ToolContext) -> str:
    """Asks with choices."""
    plain = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)
    ]
    choices = [
        {"const": f"value{n}", "title": f"{word} Choice"} for n, word in enumerate(("First", "Second", "Third"), 1)
    ]
    properties: dict[str, Any] = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": choices}},
    }
    return "Elicitation completed: " + elicited(ctx, "Choose.", {"type": "object", "properties": properties})


NAME = {"kind": "elicitation", "prompt": "What is your name?", "data": {"schema": form(name={"type": "string"})}}
OK = {"kind": "elicitation", "prompt": "Please confirm", "data": {"schema": form(ok={"type": "boolean"})}}
FRANCE = {"kind": "sampling", "data": sampled("What is the capital of France?", 100)}
ROOTS = {"kind": "roots"}


def asked(ctx: ToolContext, **questions: Any) -> str:
    if ctx.answer is None:
        suspend("several", "Something has to be known.", data={"questions": questions})
    return f"state-ok: {ctx.answer['data']['answers']}"


def test_input_required_result_elicitation(ctx: ToolContext) -> str:
    """Asks for a name."""
    return asked(ctx, user_name=NAME)


def test_input_required_result_sampling(ctx: ToolContext) -> str:
    """Asks a model."""
    return asked(ctx, capital_question=FRANCE)


def test_input_required_result_list_roots(ctx: ToolContext) -> str:
    """Asks for folders."""
    return asked(ctx, client_roots=ROOTS)


def test_input_required_result_request_state(ctx: ToolContext) -> str:
    """Asks for a word of consent."""
    return asked(ctx, confirm=OK)


def test_input_required_result_tampered_state(ctx: ToolContext) -> str:
    """Asks for a word of consent."""
    return asked(ctx, confirm=OK)


def test_input_required_result_multiple_inputs(ctx: ToolContext) -> str:
    """Asks three things at once."""
    return asked(
        ctx, user_name=NAME, greeting={**FRANCE, "data": sampled("Generate a greeting", 50)}, client_roots=ROOTS
    )


def test_input_required_result_capabilities(ctx: ToolContext) -> str:
    """Asks what can be asked."""
    return asked(ctx, user_name=NAME, capital_question=FRANCE)


def test_input_required_result_multi_round(ctx: ToolContext) -> str:
    """Asks, and asks again."""
    if ctx.answer is None:
        suspend("step1", "Step 1: What is your name?", data={"schema": form(name={"type": "string"})})
    if "name" in ctx.answer["data"]:
        schema = form(color={"type": "string"})
        suspend("step2", "Step 2: What is your favorite color?", data={"schema": schema})
    return f"Step 3: {ctx.answer['data']['color']}."


FUNCTIONS = [value for name, value in sorted(globals().items()) if name.startswith("test_") and callable(value)]


class Shelf:
    """Resources and prompts."""

    async def list_resources(self) -> list[dict[str, Any]]:
        return [
            {"uri": "test://static-text", "name": "text", "description": "Text.", "mimeType": "text/plain"},
            {"uri": "test://static-binary", "name": "image", "description": "An image.", "mimeType": "image/png"},
            {"uri": "test://watched-resource", "name": "watched", "description": "Changes.", "mimeType": "text/plain"},
        ]

    async def list_resource_templates(self) -> list[dict[str, Any]]:
        about = {"description": "Data by its id.", "mimeType": "application/json"}
        return [{"uriTemplate": "test://template/{id}/data", "name": "data", **about}]

    async def read_resource(self, uri: str, ctx: ToolContext) -> dict[str, Any] | None:
        if uri == "test://static-binary":
            return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PNG}]}
        text, kind = None, "text/plain"
        if uri in ("test://static-text", "test://watched-resource"):
            text = "This is the content of the static text resource."
        elif found := re.fullmatch(r"test://template/(\w+)/data", uri):
            text = f'{{"id":"{found[1]}","templateTest":true,"data":"Data for ID: {found[1]}"}}'
            kind = "application/json"
        return None if text is None else {"contents": [{"uri": uri, "mimeType": kind, "text": text}]}

    async def list_prompts(self) -> list[dict[str, Any]]:
        arguments = [{"name": name, "description": "An argument.", "required": True} for name in ("arg1", "arg2")]
        resource = [{"name": "resourceUri", "description": "What to embed.", "required": True}]
        return [
            {"name": "test_simple_prompt", "description": "Simple."},
            {"name": "test_prompt_with_arguments", "description": "With arguments.", "arguments": arguments},
            {"name": "test_prompt_with_embedded_resource", "description": "With a resource.", "arguments": resource},
            {"name": "test_prompt_with_image", "description": "With an image."},
            {"name": "test_input_required_result_prompt", "description": "Asks first."},
        ]

    async def get_prompt(self, name: str, arguments: Mapping[str, str], ctx: ToolContext) -> dict[str, Any] | None:
        match name:
            case "test_simple_prompt":
                return said("This is a simple prompt for testing.")
            case "test_prompt_with_arguments":
                return said(f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'")
            case "test_prompt_with_embedded_resource":
                text = "Embedded resource content for testing."
                resource = {"uri": arguments["resourceUri"], "mimeType": "text/plain", "text": text}
                return said({"type": "resource", "resource": resource}, "Please process the embedded resource above.")
            case "test_prompt_with_image":
                return said({"type": "image", "data": PNG, "mimeType": "image/png"}, "Please analyze the image above.")
            case "test_input_required_result_prompt":
                return said(asked(ctx, user_context={**NAME, "data": {"schema": form(context={"type": "string"})}}))
            case _:
                return None

    async def complete(self, params: Mapping[str, Any]) -> dict[str, Any]:
        words = [word for word in ("paris", "park", "party") if word.startswith(params["argument"]["value"])]
        return {"completion": {"values": words, "total": len(words), "hasMore": False}}

    async def watch(self, uri: str, wanted: bool) -> None:
        return None


def said(*contents: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": each} if isinstance(each, str) else each for each in contents]
    return {"messages": [{"role": "user", "content": block} for block in blocks]}


SKILLS = {
    "git-workflow/SKILL.md": "---\nname: git-workflow\ndescription: How we branch.\nlicense: MIT\n---\n# Git\n",
    "pdf-forms/SKILL.md": "---\nname: pdf-forms\ndescription: Fill in forms.\nmetadata:\n  version: 1.0\n---\n# All\n",
    "pdf-forms/references/FORMS.md": "# All forms\n",
    "pdf-forms/scripts/fill.py": "print('filled')\n",
    "pdf-forms/assets/dot.png": base64.b64decode(PNG),
}


async def skills_in(folder: Path) -> Skills:
    """Some skills, written to a folder."""
    for name, text in SKILLS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return await discover_skills(folder)


async def toolkit_of_the_suite(trigger: dict[str, Any]) -> Any:
    """The tools.

    Args:
        trigger: Where the gateway will be, under `gateway`.
    """
    toolkit = await create_toolkit(
        [
            *FUNCTIONS,
            Tool(
                name="json_schema_2020_12_tool",
                description="Tool with JSON Schema 2020-12 features",
                input_schema=SCHEMA_2020_12,
                execute=lambda args, ctx: "ok",
            ),
            Tool(
                name="test_x_mcp_header",
                description="Gets an argument that clients send in a header as well.",
                input_schema={
                    "type": "object",
                    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
                    "required": ["region"],
                },
                execute=lambda args, ctx: args["region"],
            ),
        ]
    )

    def test_trigger_tool_change() -> ToolResult:
        """Adds a tool."""
        number = len(toolkit.tools())
        toolkit.register(Tool(name=f"added_{number}", description="Added.", execute=lambda args, ctx: "added"))
        return ToolResult(output=f"added_{number} is there")

    async def test_trigger_prompt_change() -> str:
        """Says that the prompts changed."""
        await trigger["gateway"].changed("prompts")
        return "said"

    toolkit.register(test_trigger_tool_change)
    toolkit.register(test_trigger_prompt_change)
    return toolkit


async def main(transport: str, port: int) -> None:
    trigger: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        toolkit = await toolkit_of_the_suite(trigger)
        skills = await skills_in(Path(folder))
        if transport == "stdio":
            await serve_mcp(toolkit, skills=skills, upstreams=[Shelf()])
            return
        from toolnexus.gateway.http import HTTPOptions, listening

        trigger["gateway"] = Gateway(toolkit, skills=skills, upstreams=[Shelf()], name="conformance", version="1.0")
        async with listening(trigger["gateway"], HTTPOptions(port=port)) as url:
            sys.stdout.write(f"{url}\n")
            sys.stdout.flush()
            await asyncio.to_thread(sys.stdin.read)  # until whoever started it closes its side


if __name__ == "__main__":
    asyncio.run(main(*(sys.argv[1:2] or ["http"]), int((sys.argv[2:3] or ["0"])[0])))
