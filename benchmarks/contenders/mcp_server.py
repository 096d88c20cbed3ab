"""The scenario's tools behind an MCP server of a few lines on stdin and stdout. It can be slow to start."""

from __future__ import annotations

import sys
import time
from typing import Any

import orjson

from benchmarks import wire

_TOOLS = [{"name": each["function"]["name"], "inputSchema": each["function"]["parameters"]} for each in wire.TOOLS]


def _result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            about = {"name": "benchmark", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": _TOOLS}
        case "tools/call":
            arguments = params["arguments"]
            text = "sunny, 21 degrees" if params["name"] == "weather" else str(arguments["a"] + arguments["b"])
            return {"content": [{"type": "text", "text": text}]}
        case _:
            return None


def main() -> None:
    time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0)
    for line in sys.stdin.buffer:
        request = orjson.loads(line)
        if "id" not in request:
            continue
        result = _result(request["method"], request.get("params", {}))
        answer = {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
        sys.stdout.buffer.write(orjson.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
