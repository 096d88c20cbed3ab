"""Servers that are programs on this machine, and do what the real ones should not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from helpers import Changes, appears, call, connected, in_proportion, program, size_of

from toolnexus.sources.mcp.faults import MCPServerError
from toolnexus.sources.mcp.servers import connect_mcp, list_mcp_tools
from toolnexus.tools import ToolContext


async def test_a_well_behaved_server_is_used() -> None:
    async with connected("well") as servers:
        [status] = servers.status()
        assert (status.state, status.protocol, status.server, status.tools) == ("ready", "2025-11-25", "fake 1", 2)
        assert [(each.name, each.source) for each in servers.tools()] == [("s_echo", "mcp"), ("s_other", "mcp")]
        result = await call(servers, text="hi")
        assert (result.output, result.is_error) == ("hi", False)
        assert result.metadata == {"server": "s", "tool": "echo"}


async def test_what_a_server_claims_of_a_tool_is_reported_and_not_believed() -> None:
    async with connected("well") as servers:
        assert not servers.tools()[1].read_only
        result = await call(servers, "s_other")
        assert result.metadata["annotations"] == {"readOnlyHint": True}


@pytest.mark.parametrize("how", ["silent_probe", "exit_probe", "noise"])
async def test_what_servers_do_at_the_start_is_borne(how: str) -> None:
    began = time.monotonic()
    async with connected(how) as servers:
        assert (await call(servers, text="hi")).output == "hi"
    assert time.monotonic() - began < 15


async def test_a_server_that_says_little_and_has_no_tools_is_ready() -> None:
    async with connected("bare") as servers:
        assert servers.status()[0].state == "ready"
        assert await servers.get("s").read_resource("file:///a") == [{"uri": "file:///a", "text": "inside"}]


async def test_the_outcome_of_the_probe_is_remembered() -> None:
    async with connected("silent_probe") as servers:
        changes = Changes()
        server = servers.get("s")
        server._link._changed = changes
        began = time.monotonic()
        server.reconnect()
        await changes.until(lambda: servers.status()[0].reconnects == 1 and servers.status()[0].state == "ready")
        assert time.monotonic() - began < 1.9  # no further two seconds of silence
        assert (await call(servers, text="hi")).output == "hi"


async def test_bytes_that_are_no_text_cost_only_themselves() -> None:
    async with connected("utf8") as servers:
        assert (await call(servers)).output == "a\ufffd\ufffdb"


async def test_a_tool_with_a_strange_schema_costs_no_other() -> None:
    async with connected("schemas") as servers:
        assert [each.name for each in servers.tools()] == [
            "s_untyped",
            "s_schemaless",
            "s_anything",
            "s_nothing",
            "s_echo",
        ]
        assert all(each.input_schema["type"] == "object" for each in servers.tools())
        dropped = servers.status()[0].dropped
        assert list(dropped) == ["broken", "array", "text", "[7]", "[8]", "echo [10]"]
        assert "nonsense" in dropped["broken"]


async def test_the_configuration_says_which_tools_are_offered() -> None:
    async with connected(program("well", includeTools=["echo", "other"], excludeTools=["other"])) as servers:
        assert [each.name for each in servers.tools()] == ["s_echo"]


async def test_a_tool_that_is_asked_for_and_is_not_there_is_told() -> None:
    async with connected(program("well", includeTools=["echo", "tide"])) as servers:
        assert servers.status()[0].dropped == {"tide": "the configuration names it, and the server has no such tool"}


@pytest.mark.parametrize("how", ["hang_connect", "hang_list"])
async def test_a_server_that_hangs_at_the_start_fails(how: str) -> None:
    async with connected(how, startup_timeout=2.5, timeout=1) as servers:
        [status] = servers.status()
        assert status.state == "failed"
        assert "within" in status.reason


async def test_a_call_that_hangs_ends_with_its_time() -> None:
    async with connected("hang_call", timeout=0.3) as servers:
        result = await call(servers)
        assert result.is_error
        assert "tools/call was not answered within 0.3 s" in result.output
        assert "may have been executed" in result.output


async def test_the_same_cursor_again_ends_a_list() -> None:
    async with connected("cursor") as servers:
        assert [each.name for each in servers.tools()] == ["s_echo"]


async def test_all_pages_of_a_list_are_read() -> None:
    async with connected("pages") as servers:
        assert [each.name for each in servers.tools()] == ["s_echo0", "s_echo1", "s_echo2"]


async def test_a_program_that_dies_at_the_start_says_why() -> None:
    async with connected("die_at_start") as servers:
        [status] = servers.status()
        assert status.state == "failed"
        assert status.reason == (
            "its program ended with exit code 4 before it was ready. It wrote: no such database: tides"
        )


async def test_a_program_that_dies_between_calls_is_started_again() -> None:
    changes = Changes()
    async with connected("die_between", on_change=changes) as servers:
        first = await call(servers)
        await changes.until(lambda: servers.status()[0].state != "ready")
        assert "ended with exit code 0" in servers.status()[0].reason
        second = await call(servers)
        assert (first.is_error, second.is_error) == (False, False)
        assert first.output != second.output
        assert servers.status()[0].reconnects >= 1


async def test_a_call_during_which_the_program_dies_is_not_repeated(tmp_path: Path) -> None:
    async with connected("die_once", tmp_path / "died") as servers:
        first = await call(servers, text="hi")
        assert first.is_error
        assert "may have been executed, so it was not repeated" in first.output
        assert (await call(servers, text="hi")).output == "hi"


async def test_content_that_is_missing_or_of_an_unknown_kind_is_borne() -> None:
    async with connected("odd") as servers:
        assert (await call(servers, "s_echo")).output == "(The tool answered with nothing.)"
        result = await call(servers, "s_other")
        assert result.output.splitlines() == [
            '{"type":"hologram","x":1}',
            "7",
            "null",
            "(The image that the tool answered with cannot be read.)",
        ]


async def test_an_output_schema_without_structured_content_is_borne() -> None:
    async with connected("structured") as servers:
        assert not (await call(servers)).is_error


async def test_structured_content_stands_in_for_missing_content() -> None:
    async with connected("only_structured") as servers:
        result = await call(servers)
        assert (result.output, result.structured) == ('{"a":1}', {"a": 1})


async def test_a_number_that_json_does_not_have_costs_no_answer() -> None:
    async with connected("nan") as servers:
        assert (await call(servers)).output == '{"a":"NaN"}'


async def test_a_result_that_is_no_object_is_an_error() -> None:
    async with connected("result_list") as servers:
        result = await call(servers)
        assert result.is_error
        assert "no object" in result.output


async def test_long_lines_take_time_in_proportion_to_their_length() -> None:
    async with connected("big", timeout=60) as servers:

        async def big(megabytes: int) -> None:
            result = await call(servers, text=str(megabytes << 20))
            assert size_of(result.metadata["file"]) == megabytes << 20
            assert len(result.output) < 50_000
            assert "all of it is in" in result.output

        await in_proportion(big, 1, 4, 6)
        await in_proportion(big, 4, 16, 6)


def alive(word: str) -> list[int]:
    return [
        each.pid
        for each in psutil.process_iter(["cmdline", "status"])
        if each.info["status"] != psutil.STATUS_ZOMBIE and word in " ".join(each.info["cmdline"] or ())
    ]


@pytest.mark.parametrize("how", ["grandchild", "daughter"])
async def test_what_a_server_started_ends_with_it(how: str) -> None:
    word = f"mark-{os.getpid()}-{how}"
    async with connected(how, word) as servers:
        assert (await call(servers, text="hi")).output == "hi"
        assert len(alive(word)) == 2
    assert not alive(word)


async def test_a_server_that_ignores_that_it_should_end_is_ended() -> None:
    word = f"mark-{os.getpid()}-stubborn"
    async with connected("stubborn", word) as servers:
        await call(servers, text="hi")
        assert len(alive(word)) == 1
        began = time.monotonic()
    assert time.monotonic() - began < 15
    assert not alive(word)


@pytest.mark.parametrize("how", ["stubborn", "grandchild", "daughter"])
def test_servers_end_with_an_interpreter_that_is_killed(how: str) -> None:
    word = f"mark-{os.getpid()}-killed-{how}"
    script = (
        "import asyncio, sys\n"
        "from toolnexus.sources.mcp.servers import connect_mcp\n"
        "async def main():\n"
        f"    servers = await connect_mcp({{'mcpServers': {{'s': {program(how, word)!r}}}}})\n"
        "    print(servers.status()[0].state, flush=True)\n"
        "    await asyncio.sleep(100)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "ready\n"
        ours = set(alive(word)) - {host.pid}
        assert len(ours) == (1 if how == "stubborn" else 2)
        host.send_signal(signal.SIGKILL)
    _, left = psutil.wait_procs([psutil.Process(pid) for pid in ours if psutil.pid_exists(pid)], timeout=10)
    assert not left


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("npx", "the command 'npx' was not found. Install Node.js, which brings npx, or give its full path"),
        ("uvx", "Install uv, which brings uvx"),
        ("no-such-command-here", "the command 'no-such-command-here' was not found. Install it, or give its full path"),
    ],
)
async def test_a_missing_command_says_what_to_install(command: str, told: str, tmp_path: Path) -> None:
    async with connected({"command": command, "env": {"PATH": str(tmp_path)}}) as servers:
        [status] = servers.status()
        assert status.state == "failed"
        assert told in status.reason


async def test_other_reasons_why_a_program_does_not_start(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("nothing")
    config = {
        "mcpServers": {
            "plain": {"command": str(plain)},
            "folder": {"command": sys.executable, "cwd": str(tmp_path / "gone")},
        }
    }
    _, statuses = await list_mcp_tools(config)
    told = {each.name: each.reason for each in statuses}
    assert "must not be run" in told["plain"]
    assert "is not there. Make it, or change cwd" in told["folder"]


async def test_a_server_sees_what_is_configured_and_what_is_known_to_be_harmless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-secret")
    async with connected(program("env", env={"GIVEN": "yes"})) as servers:
        seen = json.loads((await call(servers)).output)
    assert seen["GIVEN"] == "yes"
    assert seen["PATH"] == os.environ["PATH"]
    assert "SOME_API_KEY" not in seen


async def test_progress_is_told_and_gives_a_call_more_time() -> None:
    told: list[tuple[str, float | None]] = []
    ctx = ToolContext(tool="s_echo", report=lambda message, fraction: told.append((message, fraction)))
    async with connected("progress", timeout=0.45) as servers:  # all four steps take longer
        result = await call(servers, ctx=ctx)
    assert result.output == "done"
    assert told == [(f"step {number}", number / 4) for number in range(4)]


async def test_cancelling_a_call_cancels_it_on_the_server(tmp_path: Path) -> None:
    told = tmp_path / "told"
    async with connected("cancel", told) as servers:
        running = asyncio.ensure_future(call(servers))
        await appears(tmp_path / "told.started")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await appears(told)
        assert (await servers.get("s").request("ping")) == {}
        assert "requestId" in json.loads(told.read_text())


async def test_a_changed_list_is_read_again(tmp_path: Path) -> None:
    changes = Changes()
    async with connected("changing", tmp_path / "changed", on_change=changes) as servers:
        [before, *_] = servers.tools()
        await call(servers, text="hi")
        await changes.until(lambda: [each.name for each in servers.tools()] == ["s_echo", "s_new"])
        assert servers.tools()[0] is before


async def test_resources_prompts_and_completions_can_be_reached() -> None:
    async with connected("well") as servers:
        server = servers.get("s")
        assert await server.list_resources() == [{"uri": "file:///a", "name": "a"}]
        assert await server.list_resource_templates() == []
        assert await server.read_resource("file:///a") == [{"uri": "file:///a", "text": "inside"}]
        assert await server.list_prompts() == [{"name": "greet"}]
        assert (await server.get_prompt("greet", {"a": "b"}))["messages"][0]["content"]["text"] == "Hello"
        assert await server.complete({"type": "ref/prompt", "name": "greet"}, "pier", "n") == ["north", "south"]
        with pytest.raises(MCPServerError, match="no/such failed: Method not found"):
            await server.request("no/such")


async def test_a_person_is_asked_in_the_middle_of_a_call() -> None:
    asked: list[Any] = []

    async def wait_for(request: Any) -> Any:
        asked.append(request)
        await asyncio.sleep(0.5)  # longer than the call may take without a sign of life
        return {"id": request["id"], "ok": True, "data": {"pier": "north"}}

    async with connected("elicit", wait_for=wait_for, timeout=0.4) as servers:
        result = await call(servers)
    assert json.loads(result.output) == {"action": "accept", "content": {"pier": "north", "berth": 7}}
    [request] = asked
    assert (request["kind"], request["prompt"]) == ("elicitation", "s asks: Which pier?")
    assert request["data"]["schema"]["properties"]["pier"] == {"type": "string"}


@pytest.mark.parametrize(
    ("answer", "action"), [({"ok": False}, "decline"), (None, "cancel")], ids=["declined", "nobody there"]
)
async def test_a_person_who_does_not_answer(answer: Any, action: str) -> None:
    def wait_for(request: Any) -> Any:
        return None if answer is None else {"id": request["id"], **answer}

    async with connected("elicit", wait_for=wait_for) as servers:
        assert json.loads((await call(servers)).output) == {"action": action}


async def test_without_anybody_to_ask_a_question_is_declined() -> None:
    async with connected("elicit") as servers:
        assert json.loads((await call(servers)).output) == {"action": "decline"}


@pytest.mark.parametrize(("url", "action"), [("https://example.com/a", "accept"), ("javascript:alert(1)", "decline")])
async def test_a_person_is_sent_only_to_places_in_the_web(url: str, action: str) -> None:
    asked: list[Any] = []

    def wait_for(request: Any) -> Any:
        asked.append(request)
        return {"id": request["id"], "ok": True}

    async with connected("elicit", url, wait_for=wait_for) as servers:
        assert json.loads((await call(servers)).output) == {"action": action}
    assert [each["url"] for each in asked] == ([url] if action == "accept" else [])


async def test_models_and_folders_are_there_only_if_the_host_gives_them(tmp_path: Path) -> None:
    for method in ("sampling/createMessage", "roots/list"):
        async with connected("back", method) as servers:
            assert json.loads((await call(servers)).output)["code"] == -32601

    def sampling(server: str, params: Any) -> Any:
        return {"role": "assistant", "content": {"type": "text", "text": f"for {server}"}, "model": "m"}

    async with connected("back", "sampling/createMessage", sampling=sampling) as servers:
        assert json.loads((await call(servers)).output)["content"]["text"] == "for s"
    async with connected("back", "roots/list", roots=[tmp_path]) as servers:
        assert json.loads((await call(servers)).output)["roots"] == [{"uri": tmp_path.as_uri(), "name": tmp_path.name}]


async def test_a_protocol_that_nobody_speaks_is_named() -> None:
    async with connected("old") as servers:
        [status] = servers.status()
        assert status.state == "failed"
        assert "'1999-01-01'" in status.reason


async def test_a_call_waits_for_a_slow_server() -> None:
    changes = Changes()
    async with connected("late", 0.5, startup_budget=0, on_change=changes) as servers:
        assert servers.status()[0].state == "connecting"
        assert servers.tools() == ()
        assert await servers.get("s").request("ping") == {}
        assert len(servers.tools()) == 2


async def test_a_switched_off_server_is_not_started() -> None:
    async with connected(program("well", disabled=True)) as servers:
        assert servers.status()[0].state == "disabled"
        with pytest.raises(MCPServerError, match="disabled"):
            await servers.get("s").request("ping")


async def test_one_of_twenty_that_hangs_costs_nothing_else() -> None:
    entries = {f"s{number}": program("hang_connect" if number == 7 else "well") for number in range(20)}
    async with await connect_mcp({"mcpServers": entries}, startup_budget=20, startup_timeout=8) as servers:
        states = {each.name: each.state for each in servers.status()}
        assert states.pop("s7") == "failed"
        assert set(states.values()) == {"ready"}
        assert len(servers.tools()) == 38
