"""An MCP server of a few lines, that does one thing wrong: the word it is called with."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

HOW = sys.argv[1] if len(sys.argv) > 1 else "well"
MORE = sys.argv[2:]
ECHO = {
    "name": "echo",
    "description": "Says it again.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}
PIER = {"type": "object", "properties": {"pier": {"type": "string"}, "berth": {"type": "integer", "default": 7}}}
PLACE = Path(*MORE[:1])
SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)", *MORE]
LOCK = threading.Lock()
PENDING: dict = {}


def write(data: bytes) -> None:
    with LOCK:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def send(message: dict) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def answer(request: dict, result: object) -> None:
    send({"id": request["id"], "result": result})


def say(request: dict, text: str) -> None:
    answer(request, {"content": [{"type": "text", "text": text}]})


def refuse(request: dict, code: int = -32601, message: str = "Method not found", **more) -> None:
    send({"id": request["id"], "error": {"code": code, "message": message, **more}})


def tools() -> list:
    match HOW:
        case "schemas":
            return [
                {"name": "untyped", "inputSchema": {"properties": {"a": {"type": "integer"}}}},
                {"name": "schemaless"},
                {"name": "anything", "inputSchema": True},
                {"name": "nothing", "inputSchema": False},
                {"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"type": "nonsense"}}}},
                {"name": "array", "inputSchema": {"type": "array"}},
                {"name": "text", "inputSchema": "object"},
                {"inputSchema": {"type": "object"}},
                "no tool at all",
                ECHO,
                {**ECHO, "description": "The second of the name."},
            ]
        case "structured":
            return [
                {
                    **ECHO,
                    "outputSchema": {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}},
                }
            ]
        case "changing" if PLACE.exists():
            return [ECHO, {"name": "new", "inputSchema": {"type": "object"}}]
        case _:
            return [ECHO, {"name": "other", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]


def call(request: dict) -> None:
    name, arguments = request["params"]["name"], request["params"].get("arguments") or {}
    match HOW:
        case "hang_call":
            return
        case "die_during":
            os._exit(3)
        case "die_once" if not PLACE.exists():
            PLACE.touch()
            os._exit(3)
        case "die_between":
            say(request, f"from {os.getpid()}")
            os._exit(0)
        case "utf8":
            write(
                b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [{"type": "text", "text": "a\xff\xfeb"}]}}\n'
                % request["id"]
            )
        case "odd":
            answer(
                request,
                {"sunny": True}
                if name == "echo"
                else {"content": [{"type": "hologram", "x": 1}, 7, None, {"type": "image"}]},
            )
        case "nan":
            write(b'{"jsonrpc": "2.0", "id": %d, "result": {"structuredContent": {"a": NaN}}}\n' % request["id"])
        case "structured":
            answer(request, {"content": []})
        case "only_structured":
            answer(request, {"structuredContent": {"a": 1}})
        case "result_list":
            answer(request, [1, 2])
        case "big":
            head = b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [{"type": "text", "text": "' % request["id"]
            write(head + b"x" * int(arguments["text"]) + b'"}]}}\n')
        case "progress":
            token = request["params"]["_meta"]["progressToken"]
            for number in range(4):
                send(
                    {
                        "method": "notifications/progress",
                        "params": {"progressToken": token, "progress": number, "total": 4, "message": f"step {number}"},
                    }
                )
                time.sleep(0.15)
            say(request, "done")
        case "cancel":
            Path(f"{PLACE}.started").touch()
        case "elicit":
            PENDING[100] = request
            asked = {"message": "Which pier?", "requestedSchema": PIER}
            if MORE:
                asked = {"mode": "url", "message": "Look here.", "url": MORE[0], "elicitationId": "e"}
            send({"id": 100, "method": "elicitation/create", "params": asked})
        case "back":
            PENDING[101] = request
            send({"id": 101, "method": MORE[0], "params": {}})
        case "env":
            say(request, json.dumps(dict(os.environ)))
        case _:
            say(request, str(arguments.get("text", "nothing")))


def handle(request: dict) -> None:
    method = request.get("method")
    if method is None:
        if request.get("id") in PENDING:
            say(PENDING.pop(request["id"]), json.dumps(request.get("result", request.get("error"))))
        return
    if "id" not in request:
        if method == "notifications/cancelled" and HOW == "cancel":
            PLACE.write_text(json.dumps(request["params"]))
        return
    match method:
        case "server/discover":
            if HOW == "silent_probe":
                return
            if HOW == "exit_probe":
                sys.exit(1)
            refuse(request)
        case "initialize":
            if HOW == "hang_connect":
                return
            if HOW == "old":
                answer(
                    request,
                    {
                        "protocolVersion": "1999-01-01",
                        "capabilities": {},
                        "serverInfo": {"name": "old", "version": "1"},
                    },
                )
                return
            if HOW == "bare":
                answer(request, {"protocolVersion": "2025-11-25"})
                return
            if HOW == "slow":
                time.sleep(float(MORE[0]))
            answer(
                request,
                {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": "fake", "version": "1"},
                },
            )
        case "tools/list":
            if HOW == "hang_list":
                return
            if HOW == "bare":
                refuse(request, -32603, "no tools here")
                return
            if HOW == "cursor":
                answer(request, {"tools": [ECHO], "nextCursor": "again"})
            elif HOW == "pages":
                at = int(request.get("params", {}).get("cursor", "0"))
                answer(
                    request,
                    {"tools": [{**ECHO, "name": f"echo{at}"}], **({"nextCursor": str(at + 1)} if at < 2 else {})},
                )
            else:
                answer(request, {"tools": tools()})
        case "tools/call":
            if HOW == "progress":
                threading.Thread(target=call, args=(request,)).start()
            else:
                call(request)
            if HOW == "changing":
                PLACE.touch()
                send({"method": "notifications/tools/list_changed"})
        case "ping":
            answer(request, {})
        case "resources/list":
            answer(request, {"resources": [{"uri": "file:///a", "name": "a"}]})
        case "resources/read":
            answer(request, {"contents": [{"uri": request["params"]["uri"], "text": "inside"}]})
        case "prompts/list":
            answer(request, {"prompts": [{"name": "greet"}]})
        case "prompts/get":
            answer(request, {"messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}]})
        case "completion/complete":
            answer(request, {"completion": {"values": ["north", "south"]}})
        case _:
            refuse(request)


def main() -> None:
    if HOW == "die_at_start":
        sys.stderr.write("no such database: tides\n")
        sys.exit(4)
    if HOW == "late":
        time.sleep(float(MORE[0]))
    if HOW == "noise":
        write(b'Starting up...\n\n[1, 2]\n{not json}\n\xff\xfe\n{}\n42\n"text"\nnull\n')
    if HOW == "grandchild":
        subprocess.Popen(SLEEPER, stdin=subprocess.DEVNULL)
    if HOW == "daughter":
        subprocess.Popen(SLEEPER, start_new_session=True, stdin=subprocess.DEVNULL)
    if HOW == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        if HOW == "noise":
            write(b"about to answer\n")
        handle(json.loads(line))
    if HOW == "stubborn":
        time.sleep(600)


main()
