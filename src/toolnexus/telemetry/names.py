"""What spans, metrics and their attributes are called: GenAI semantic conventions, and names of our own beside them.

Source: https://github.com/open-telemetry/semantic-conventions-genai
"""

from __future__ import annotations

from typing import Final

INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"

STATUS: Final = "toolnexus.status"
"""How a run ended: a status of a result, `replayed` or `cancelled`."""
OUTCOME: Final = "toolnexus.tool.outcome"
"""How a call ended: `ok`, `error`, `suspended` or `cancelled`."""
RETRY: Final = "retry"
RETRY_DELAY: Final = "toolnexus.retry.delay"

# Only with `capture_content=True`.
SYSTEM: Final = "gen_ai.system_instructions"
INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"

AGENT_SECONDS: Final = "gen_ai.invoke_agent.duration"
INFERENCE_SECONDS: Final = "gen_ai.client.inference.duration"
INFERENCE_FIRST_CHUNK: Final = "gen_ai.client.inference.time_to_first_chunk"
TOOL_SECONDS: Final = "gen_ai.execute_tool.duration"

TOKENS: Final = {
    "prompt": "input_tokens",
    "completion": "output_tokens",
    "cached": "cache_read.input_tokens",
    "cache_write": "cache_write.input_tokens",
    "reasoning": "reasoning.output_tokens",
}
"""What the conventions call the fields of `Usage`: after `gen_ai.usage.` on a span, after
`gen_ai.client.inference.usage.` as a counter."""
SPAN_USAGE: Final = "gen_ai.usage."
COUNTED_USAGE: Final = "gen_ai.client.inference.usage."

PROVIDERS: Final = {
    "gemini": "gcp.gemini",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
"""What the conventions call the providers whose rows have another name."""

SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Bounds of the buckets of durations."""


def series(name: str) -> str:
    """What a series of ours is called for Prometheus."""
    return f"toolnexus_{name}"
