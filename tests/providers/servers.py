"""Strict servers, one for each provider. What they demand is written here again and not read from the table."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from wire_rules import check_anthropic, check_gemini, check_openai, check_responses

from providers import replies
from toolnexus.testing import SentRequest
from toolnexus.transport import Response

KEY = "sk-of-this-provider"
FOREIGN_THOUGHT = "a thought of another provider"

_LIMIT = 77
LIMIT = {"max_tokens": _LIMIT}
"""What the client is told to ask for."""


@dataclass(frozen=True, kw_only=True)
class Strict:
    """What one provider demands.

    Attributes:
        home: Its base URL.
        environ: What its users set; the key is `KEY`.
        styles: The styles it speaks, best first, and the path of each after `home`.
        auth: The header that has the key, by style; `bearer` for the usual one. Without an entry: the same as `""`.
        keyless: It is asked without any key.
        limit_field: What chat completions call the token limit.
        call_ids: Regular expression of the call ids that it takes.
        own_ids: The call ids that it gives.
        body: Further keys of a chat completion's body that it takes.
        reasoning: Where a message of chat completions has its reasoning; empty: it sends none.
        takes_back: The keys of such messages, beyond the usual, that it takes.
        demands: A key that it wants in every message of the assistant, with something in it.
        anthropic_version: The versions of the messages API that it serves.
    """

    home: str
    environ: Mapping[str, str] = field(default_factory=dict)
    styles: Mapping[str, str] = field(default_factory=lambda: {"openai": "/chat/completions"})
    auth: Mapping[str, str] = field(default_factory=lambda: {"": "bearer"})
    keyless: bool = False
    limit_field: str = "max_tokens"
    call_ids: str = r"(?s).+"
    own_ids: tuple[str, str] = ("call_abcdefghijklmnopqrstuv01", "call_abcdefghijklmnopqrstuv02")
    body: frozenset[str] = frozenset({"stream_options"})
    reasoning: str = ""
    takes_back: frozenset[str] = frozenset()
    demands: str = ""
    anthropic_version: frozenset[str] = frozenset({"2023-06-01", "2026-10-21"})

    def answer(self, style: str, model: str, step: int, request: SentRequest) -> Any:
        """Check a request as strictly as the provider does, and answer it.

        Args:
            step: 1 for a request whose answer calls tools, 2 for one whose answer is text.
        """
        self._check_address(style, model, request)
        refusal = self._check_key(style, request)
        if refusal is not None:
            return refusal
        body = request.json
        match style:
            case "openai":
                self._check_openai(body, model, request)
                return replies.openai(
                    step, stream=request.stream, reasoning=self.reasoning, call_ids=list(self.own_ids)
                )
            case "anthropic":
                self._check_anthropic(body, model, request)
                return replies.anthropic(step, stream=request.stream)
            case "responses":
                check_responses(body)
                allowed = {"model", "input", "instructions", "tools", "max_output_tokens", "stream"}
                assert body.keys() <= allowed, body.keys() - allowed
                assert (body["model"], body["max_output_tokens"]) == (model, _LIMIT)
                assert body.get("stream", False) is request.stream
                return replies.responses(step, stream=request.stream)
            case _:
                check_gemini(body, model=model)
                assert body["generationConfig"] == {"maxOutputTokens": _LIMIT}
                return replies.gemini(step, stream=request.stream)

    def _check_address(self, style: str, model: str, request: SentRequest) -> None:
        url = f"{self.home}{self.styles[style]}"
        if style == "gemini":
            url += f"/models/{model}:" + ("streamGenerateContent?alt=sse" if request.stream else "generateContent")
        assert request.url == url
        assert request.headers["content-type"] == "application/json"

    def _check_key(self, style: str, request: SentRequest) -> Response | None:
        headers = request.headers
        sent = {name for name in ("authorization", "x-api-key", "api-key", "x-goog-api-key") if name in headers}
        if self.keyless:
            assert not sent
            return None
        header = self.auth.get(style, self.auth.get("", "bearer"))
        name, value = ("authorization", f"Bearer {KEY}") if header == "bearer" else (header, KEY)
        assert sent == {name}, "the key goes in one header"
        if headers[name] != value:
            return Response(status=401, headers={}, body=b'{"error": {"message": "Incorrect API key"}}')
        return None

    def _check_openai(self, body: Any, model: str, request: SentRequest) -> None:
        check_openai(body, call_ids=self.call_ids)
        allowed = {"model", "messages", "tools", "stream", self.limit_field, *self.body}
        assert body.keys() <= allowed, body.keys() - allowed
        assert (body["model"], body[self.limit_field]) == (model, _LIMIT)
        assert body.get("stream", False) is request.stream
        assert "stream_options" not in body or request.stream
        for message in body["messages"]:
            if message["role"] != "assistant":
                continue
            unknown = message.keys() - {"role", "content", "tool_calls"} - self.takes_back
            assert not unknown, f"property {unknown} is unsupported"
            assert not self.demands or message.get(self.demands), f"{self.demands} is missing"
            if isinstance(message["content"], list):
                assert self.reasoning == "parts"
            for call in message.get("tool_calls", ()):
                assert call.keys() == {"id", "type", "function"}

    def _check_anthropic(self, body: Any, model: str, request: SentRequest) -> None:
        check_anthropic(body)
        version = request.headers["anthropic-version"]
        assert version in self.anthropic_version
        assert version < "2026" or not body.keys() & {"temperature", "top_p", "top_k"}
        allowed = {"model", "messages", "tools", "stream", "system", "max_tokens", "temperature", "top_p", "top_k"}
        assert body.keys() <= allowed, body.keys() - allowed
        assert (body["model"], body["max_tokens"]) == (model, _LIMIT)
        assert body.get("stream", False) is request.stream

    @property
    def host(self) -> str:
        return urlsplit(self.home).netloc


def thoughts(body: Any) -> int:
    """How often a request says what the provider thought."""
    return len(re.findall(re.escape(replies.THOUGHT), json.dumps(body)))


_CHAT_AND_RESPONSES = {"responses": "/responses", "openai": "/chat/completions"}
_REASONS = frozenset({"reasoning_content"})

SERVERS: Mapping[str, Strict] = {
    "openai": Strict(
        home="https://api.openai.com/v1",
        environ={"OPENAI_API_KEY": KEY},
        styles=_CHAT_AND_RESPONSES,
        limit_field="max_completion_tokens",
        call_ids=r".{1,40}",
    ),
    "anthropic": Strict(
        home="https://api.anthropic.com",
        environ={"ANTHROPIC_API_KEY": KEY},
        styles={"anthropic": "/v1/messages"},
        auth={"": "x-api-key"},
    ),
    "gemini": Strict(
        home="https://generativelanguage.googleapis.com/v1beta",
        environ={"GEMINI_API_KEY": KEY},
        styles={"gemini": "", "openai": "/openai/chat/completions"},
        auth={"": "x-goog-api-key", "openai": "bearer"},
    ),
    "openrouter": Strict(
        home="https://openrouter.ai/api/v1",
        environ={"OPENROUTER_API_KEY": KEY},
        call_ids=r".{1,64}",
        reasoning="reasoning_details",
        takes_back=frozenset({"reasoning", "reasoning_details"}),
    ),
    "groq": Strict(
        home="https://api.groq.com/openai/v1",
        environ={"GROQ_API_KEY": KEY},
        limit_field="max_completion_tokens",
        reasoning="reasoning",
    ),
    "mistral": Strict(
        home="https://api.mistral.ai/v1",
        environ={"MISTRAL_API_KEY": KEY},
        call_ids="[a-zA-Z0-9]{9}",
        own_ids=("D681PevKs", "a1B2c3D4e"),
        body=frozenset(),
        reasoning="parts",
    ),
    "deepseek": Strict(
        home="https://api.deepseek.com",
        environ={"DEEPSEEK_API_KEY": KEY},
        reasoning="reasoning_content",
        takes_back=_REASONS,
        demands="reasoning_content",
    ),
    "xai": Strict(
        home="https://api.x.ai/v1",
        environ={"XAI_API_KEY": KEY},
        styles=_CHAT_AND_RESPONSES,
        reasoning="reasoning_content",
        takes_back=_REASONS,
    ),
    "together": Strict(
        home="https://api.together.ai/v1",
        environ={"TOGETHER_API_KEY": KEY},
        reasoning="reasoning",
        takes_back=frozenset({"reasoning"}),
    ),
    "fireworks": Strict(
        home="https://api.fireworks.ai/inference/v1",
        environ={"FIREWORKS_API_KEY": KEY},
        reasoning="reasoning_content",
        takes_back=_REASONS,
    ),
    "azure": Strict(
        home="https://mine.openai.azure.com/openai/v1",
        environ={"AZURE_OPENAI_API_KEY": KEY, "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/"},
        styles=_CHAT_AND_RESPONSES,
        auth={"": "api-key"},
        limit_field="max_completion_tokens",
        call_ids=r".{1,40}",
    ),
    "bedrock": Strict(
        home="https://bedrock-runtime.eu-central-1.amazonaws.com/openai/v1",
        environ={"AWS_BEARER_TOKEN_BEDROCK": KEY, "AWS_REGION": "eu-central-1"},
        styles=_CHAT_AND_RESPONSES,
    ),
    "cerebras": Strict(
        home="https://api.cerebras.ai/v1",
        environ={"CEREBRAS_API_KEY": KEY},
        limit_field="max_completion_tokens",
        reasoning="reasoning",
        takes_back=frozenset({"reasoning"}),
    ),
    "perplexity": Strict(home="https://api.perplexity.ai", environ={"PERPLEXITY_API_KEY": KEY}),
    "moonshot": Strict(
        home="https://api.moonshot.ai/v1",
        environ={"MOONSHOT_API_KEY": KEY},
        own_ids=("add:0", "look:1"),
        reasoning="reasoning_content",
        takes_back=_REASONS,
        demands="reasoning_content",
    ),
    "zai": Strict(
        home="https://api.z.ai/api/paas/v4",
        environ={"ZAI_API_KEY": KEY},
        reasoning="reasoning_content",
        takes_back=_REASONS,
    ),
    "alibaba": Strict(
        home="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        environ={"DASHSCOPE_API_KEY": KEY},
        reasoning="reasoning_content",
        takes_back=_REASONS,
    ),
    "deepinfra": Strict(
        home="https://api.deepinfra.com/v1/openai",
        environ={"DEEPINFRA_API_KEY": KEY},
        reasoning="reasoning_content",
        takes_back=_REASONS,
    ),
    "huggingface": Strict(home="https://router.huggingface.co/v1", environ={"HF_TOKEN": KEY}),
    "sambanova": Strict(home="https://api.sambanova.ai/v1", environ={"SAMBANOVA_API_KEY": KEY}),
    "nebius": Strict(
        home="https://api.studio.nebius.com/v1",
        environ={"NEBIUS_API_KEY": KEY},
        reasoning="reasoning_content",
        takes_back=_REASONS,
    ),
    "ollama": Strict(
        home="http://localhost:11434/v1",
        styles={"openai": "/chat/completions", "responses": "/responses", "anthropic": "/messages"},
        keyless=True,
        reasoning="reasoning",
        takes_back=frozenset({"reasoning"}),
    ),
    "lmstudio": Strict(
        home="http://localhost:1234/v1",
        styles={"openai": "/chat/completions", "responses": "/responses", "anthropic": "/messages"},
        keyless=True,
    ),
    "llamacpp": Strict(
        home="http://localhost:8080/v1",
        styles={"openai": "/chat/completions", "anthropic": "/messages"},
        keyless=True,
        reasoning="reasoning_content",
        takes_back=_REASONS,
    ),
    "vllm": Strict(
        home="http://localhost:8000/v1",
        styles={"openai": "/chat/completions", "responses": "/responses"},
        keyless=True,
        own_ids=("chatcmpl-tool-0123456789abcdef0123456789abcdef", "chatcmpl-tool-fedcba9876543210fedcba9876543210"),
        reasoning="reasoning",
        takes_back=frozenset({"reasoning"}),
    ),
}
