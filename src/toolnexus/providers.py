"""The provider table: data, no code. A row says how a provider is reached and in what it differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Auth: TypeAlias = Literal["bearer", "x-api-key", "api-key", "x-goog-api-key"]
SchemaMode: TypeAlias = Literal["native", "tool", "prompt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A row of the table.

    Attributes:
        name: What stands before the colon in `name:model`. Empty: the row of unknown hosts.
        base_url: Where it lives. A `{field}` in it is filled from the variable that `url_fields` names; one that is
            not named there has to come from `base_url_variable` or from the caller.
        style_urls: Base URLs of the styles that live elsewhere.
        url_fields: Field of `base_url` to environment variable.
        styles: The wire styles that it speaks, best first. Some of them may not be built yet.
        keys: Environment variables of the API key; the first that is set wins.
        base_url_variable: Environment variable that overrides the base URL. None: there is none.
        auth: How a key is sent: `bearer` (`Authorization: Bearer KEY`), or the header that holds it.
        style_auth: The same for the styles that want it another way.
        bearer_keys: Variables of `keys` whose value goes as a bearer token whatever `auth` says.
        key_required: Whether it is an error to have no key.
        headers: Headers sent with every request, names in lower case. The caller's replace them.
        header_variables: Further headers: name in lower case to the environment variable of its value.
        max_tokens_field: What the `openai` style calls the token limit.
        default_max_tokens: Sent when the caller gives none, for wires that require a limit. None: nothing is sent.
        call_id_form: Regular expression of the tool call ids that it accepts. None: any.
        schema_mode: How an answer is made to fit a schema: by the wire's own option, by a tool that takes it, or
            by asking for it in words. `native` only where all models take the option, also together with tools.
        parts: The types of content parts that it takes in a user's message. None: all that its wire can say.
        takes_stream_options: Whether it takes `stream_options`, by which others are asked to say the usage of a
            stream.
        tells_cost: The `cost` in the usage that it tells is what it charged, in US dollars.
        refuses_reasoning: It refuses messages that carry the reasoning it sent.
        wants_reasoning: It refuses messages of the assistant that carry no reasoning, even where the model had none or
            the message came from elsewhere.
        models_path: Where its models are listed, appended to a base URL (a `/v1` that is there already is not added
            again). Empty: it lists none.
        probe: A path from the root of its host that answers 200 without a key when the server is up. Empty: none.
        lists_instead: What its list holds, where that is not what can be asked for. Empty: it is.
        local: It runs on the user's machine.
        start: The command that starts it. Empty: none is known.
        get_model: The command that gets a model, `{model}`, which it does not have. Empty: none is known.
        note: Said with an error 400, to help.
    """

    name: str = ""
    base_url: str = ""
    style_urls: Mapping[str, str] = field(default_factory=dict[str, str])
    url_fields: Mapping[str, str] = field(default_factory=dict[str, str])
    styles: tuple[str, ...] = ("openai",)
    keys: tuple[str, ...] = ()
    base_url_variable: str | None = None
    auth: Auth = "bearer"
    style_auth: Mapping[str, Auth] = field(default_factory=dict[str, "Auth"])
    bearer_keys: tuple[str, ...] = ()
    key_required: bool = True
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    header_variables: Mapping[str, str] = field(default_factory=dict[str, str])
    max_tokens_field: str = "max_tokens"
    default_max_tokens: int | None = None
    call_id_form: str | None = None
    schema_mode: SchemaMode = "tool"
    parts: frozenset[str] | None = None
    takes_stream_options: bool = True
    tells_cost: bool = False
    refuses_reasoning: bool = False
    wants_reasoning: bool = False
    models_path: str = "/models"
    probe: str = ""
    lists_instead: str = ""
    local: bool = False
    start: str = ""
    get_model: str = ""
    note: str = ""


THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
"""What this machine calls itself in addresses."""

UNKNOWN = Provider(key_required=False)
"""The row of hosts that have none."""

_TEXT = frozenset({"text"})
_IMAGES = frozenset({"text", "image_url"})
_SOUNDS = frozenset({"text", "image_url", "input_audio"})

_ROWS = (
    Provider(
        name="openai",
        base_url="https://api.openai.com/v1",
        styles=("responses", "openai"),
        keys=("OPENAI_API_KEY",),
        base_url_variable="OPENAI_BASE_URL",
        header_variables={"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"},
        max_tokens_field="max_completion_tokens",
        call_id_form="[!-~]{1,40}",
        schema_mode="native",
    ),
    Provider(
        name="anthropic",
        base_url="https://api.anthropic.com",
        styles=("anthropic",),
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        base_url_variable="ANTHROPIC_BASE_URL",
        auth="x-api-key",
        bearer_keys=("ANTHROPIC_AUTH_TOKEN",),
        # Newer versions refuse temperature, top_p and top_k. Choose one with headers={"anthropic-version": …}.
        headers={"anthropic-version": "2023-06-01"},
        default_max_tokens=8192,
        schema_mode="native",
        models_path="/v1/models",
    ),
    Provider(
        name="gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        style_urls={"openai": "https://generativelanguage.googleapis.com/v1beta/openai"},
        styles=("gemini", "openai"),
        keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        auth="x-goog-api-key",
        style_auth={"openai": "bearer"},
    ),
    Provider(
        name="openrouter",
        base_url="https://openrouter.ai/api/v1",
        keys=("OPENROUTER_API_KEY",),
        # Its own ids come back in the reasoning of some models, so that they have to stay. They are shorter than this.
        call_id_form="[!-~]{1,64}",
        tells_cost=True,
    ),
    Provider(
        name="groq",
        base_url="https://api.groq.com/openai/v1",
        keys=("GROQ_API_KEY",),
        max_tokens_field="max_completion_tokens",
        parts=_IMAGES,
        refuses_reasoning=True,
    ),
    Provider(
        name="mistral",
        base_url="https://api.mistral.ai/v1",
        keys=("MISTRAL_API_KEY",),
        call_id_form="[A-Za-z0-9]{9}",
        parts=_IMAGES,
        takes_stream_options=False,
    ),
    Provider(
        name="deepseek",
        base_url="https://api.deepseek.com",
        keys=("DEEPSEEK_API_KEY",),
        parts=_TEXT,
        wants_reasoning=True,
    ),
    Provider(
        name="xai",
        base_url="https://api.x.ai/v1",
        styles=("responses", "openai"),
        keys=("XAI_API_KEY",),
        parts=_IMAGES,
    ),
    Provider(name="together", base_url="https://api.together.ai/v1", keys=("TOGETHER_API_KEY",), parts=_IMAGES),
    Provider(
        name="fireworks", base_url="https://api.fireworks.ai/inference/v1", keys=("FIREWORKS_API_KEY",), parts=_IMAGES
    ),
    Provider(
        name="azure",
        base_url="https://{resource}.openai.azure.com/openai/v1",
        styles=("responses", "openai"),
        keys=("AZURE_OPENAI_API_KEY",),
        base_url_variable="AZURE_OPENAI_ENDPOINT",
        auth="api-key",
        max_tokens_field="max_completion_tokens",
        call_id_form="[!-~]{1,40}",
        schema_mode="native",
        lists_instead="the models that deployments can be made of, and not your deployments, which are what is asked",
    ),
    Provider(
        name="bedrock",
        base_url="https://bedrock-runtime.{region}.amazonaws.com/openai/v1",
        url_fields={"region": "AWS_REGION"},
        styles=("responses", "openai"),
        keys=("AWS_BEARER_TOKEN_BEDROCK",),
    ),
    Provider(
        name="cerebras",
        base_url="https://api.cerebras.ai/v1",
        keys=("CEREBRAS_API_KEY",),
        max_tokens_field="max_completion_tokens",
        parts=_IMAGES,
    ),
    Provider(
        name="perplexity",
        base_url="https://api.perplexity.ai",
        keys=("PERPLEXITY_API_KEY",),
        schema_mode="native",  # most of its models have no tools
        parts=_IMAGES,
        models_path="",
    ),
    Provider(
        name="moonshot",
        base_url="https://api.moonshot.ai/v1",
        keys=("MOONSHOTAI_API_KEY", "MOONSHOT_API_KEY"),
        parts=_IMAGES,
        wants_reasoning=True,
    ),
    Provider(name="zai", base_url="https://api.z.ai/api/paas/v4", keys=("ZAI_API_KEY",), parts=_IMAGES),
    Provider(
        name="alibaba",
        base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        keys=("ALIBABA_API_KEY", "DASHSCOPE_API_KEY"),
        parts=_SOUNDS,
    ),
    Provider(
        name="deepinfra", base_url="https://api.deepinfra.com/v1/openai", keys=("DEEPINFRA_API_KEY",), parts=_IMAGES
    ),
    Provider(name="huggingface", base_url="https://router.huggingface.co/v1", keys=("HF_TOKEN",), parts=_IMAGES),
    Provider(name="sambanova", base_url="https://api.sambanova.ai/v1", keys=("SAMBANOVA_API_KEY",), parts=_IMAGES),
    Provider(name="nebius", base_url="https://api.studio.nebius.com/v1", keys=("NEBIUS_API_KEY",), parts=_IMAGES),
    Provider(
        name="ollama",
        base_url="http://localhost:11434/v1",
        styles=("openai", "responses", "anthropic"),
        keys=("OLLAMA_API_KEY",),
        base_url_variable="OLLAMA_HOST",
        key_required=False,
        parts=_IMAGES,
        probe="/api/version",
        local=True,
        start="ollama serve",
        get_model="ollama pull {model}",
    ),
    Provider(
        name="lmstudio",
        base_url="http://localhost:1234/v1",
        styles=("openai", "responses", "anthropic"),
        key_required=False,
        parts=_IMAGES,
        probe="/v1/models",
        local=True,
        start="lms server start",
    ),
    Provider(
        name="llamacpp",
        base_url="http://localhost:8080/v1",
        styles=("openai", "anthropic"),
        keys=("LLAMA_API_KEY",),
        key_required=False,
        parts=_SOUNDS,
        probe="/health",
        local=True,
        start="llama-server -m MODEL.gguf --jinja --port 8080",
    ),
    Provider(
        name="vllm",
        base_url="http://localhost:8000/v1",
        styles=("openai", "responses"),
        keys=("VLLM_API_KEY",),
        key_required=False,
        parts=_SOUNDS,
        probe="/health",
        local=True,
        start="vllm serve MODEL --enable-auto-tool-choice --tool-call-parser PARSER",
        note="If this is vLLM: tools need --enable-auto-tool-choice and --tool-call-parser on the server.",
    ),
)

PROVIDERS: dict[str, Provider] = {row.name: row for row in _ROWS}
"""The rows by name. A client is given further ones with `create_client(providers=…)`."""
