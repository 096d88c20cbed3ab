"""A client for a model that lives in this process: a plain function that maps messages to an answer."""

from __future__ import annotations

import dataclasses
import inspect
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from toolnexus import _callbacks
from toolnexus._source import dialect, load
from toolnexus.client import Client
from toolnexus.clock import Clock, SystemClock, within
from toolnexus.dialects import Reply, Target
from toolnexus.errors import IncompleteReply, InvalidReply, ProviderError, RunTimeout, ToolnexusError
from toolnexus.events import Retrying, TextDelta, Usage
from toolnexus.messages import clean_text, copy_json
from toolnexus.providers import Provider

if TYPE_CHECKING:
    from toolnexus._model import Model, ReplyPart
    from toolnexus.dialects import Reading, Request, ResponseSchema
    from toolnexus.stores import ConversationStore

Answer: TypeAlias = Mapping[str, Any] | AsyncIterator[str | Mapping[str, Any]]
Generate: TypeAlias = Callable[[dict[str, Any]], Answer | Awaitable[Answer]]

_TARGET = Target(
    style="in_process",
    host="in-process",
    provider=Provider(name="in-process", key_required=False, schema_mode="prompt"),
)
_EXPECTED = (
    'Expected {"content": str} or {"tool_calls": [{"name": str, "arguments": dict or JSON text, "id"?: str}]}, '
    'each with "usage"? beside it, or an async iterator of str that ends with such a dict.'
)
_FIRST_WAIT = 0.5
"""Seconds that a first retry waits at most; each further one twice as long."""


def create_in_process_client(
    *,
    model: str = "in-process",
    generate: Generate,
    store: ConversationStore | str | None = None,
    retries: int = 0,
    clock: Clock | None = None,
    **options: Any,
) -> Client:
    """Make a client whose model is a function in this process. It needs no base URL, key or style.

    Args:
        model: The name under which the model appears in results and stored messages.
        generate: Gets `{"messages": […], "tools": […], "model": str}`: the transcript in the OpenAI chat shape with
            the system prompt first, and the tools as OpenAI function declarations; all of it is a copy. It gives
            `{"content": str}` or `{"tool_calls": [{"name", "arguments", "id"?}]}` (or both), with `"usage"?`: the
            fields of `Usage`, or as the OpenAI API names them. `arguments` is a dict or JSON text. A plain function
            runs in a worker thread; it may also be async, or return an async iterator of pieces of text that ends
            with such a dict, in which `content` may then be left out.
        store: Where conversations are kept: a store, or the text that names one, such as `sqlite:///chat.db` (see
            `toolnexus.stores.opening`). None: in memory, for the life of the client.
        retries: How often a request is repeated when `generate` raises a `ToolnexusError` with `retryable` set, before
            anything was shown. Other exceptions are never retried.
        clock: What retries wait by, and requests to people expire by. None: the machine's.
        options: As for `create_client`: `system_prompt`, `hooks`, `on_event`, `max_steps`, `timeout`, …
    """
    clock = clock or SystemClock()
    return Client(_Source(model, generate, retries=retries, clock=clock), store=store, clock=clock, **options)


class _Source:
    """Makes the model of each run."""

    def __init__(self, name: str, generate: Generate, *, retries: int, clock: Clock) -> None:
        self.name = name
        self._generate = generate
        self._retries = retries
        self._clock = clock
        self._loaded = False

    @property
    def ready(self) -> bool:
        return self._loaded

    @property
    def target(self) -> Target:
        return _TARGET

    @property
    def parts(self) -> None:
        """It gets the transcript as it is."""
        return None

    async def prepare(self) -> None:
        await load("toolnexus._json", "toolnexus._workers", "toolnexus.dialects.openai")
        self._loaded = True

    def model(self, schema: ResponseSchema | None = None) -> Model:
        model = InProcessModel(self._generate, retries=self._retries, clock=self._clock)
        if schema is None:
            return model
        from toolnexus._answer_schema import fitted  # loaded with the first schema

        return fitted(model, schema, _TARGET)

    async def aclose(self) -> None: ...


class InProcessModel:
    """One run's line to `generate`. Its answer is read as a chat completion is, so that the same rules hold."""

    def __init__(self, generate: Generate, *, retries: int = 0, clock: Clock | None = None) -> None:
        self._generate = generate
        self._retries = retries
        self._clock = clock or SystemClock()
        self._dialect = dialect("openai")
        self._encoder = self._dialect.encoder(_TARGET)

    async def reply(self, request: Request, *, deadline: float | None) -> AsyncGenerator[ReplyPart, None]:
        """See `Model.reply`.

        Raises:
            InvalidReply: `generate` gave something else than an answer. The message says what.
            ProviderError: `generate` raised; its exception is the cause.
        """
        retried = 0
        shown = False
        while True:
            try:
                async with aclosing(self._attempt(request, deadline)) as parts:
                    async for part in parts:
                        shown = True
                        yield part
            except ToolnexusError as error:
                failure = error
            else:
                return
            if shown or isinstance(failure, RunTimeout) or not failure.retryable or retried >= self._retries:
                raise failure
            delay = random.uniform(0, _FIRST_WAIT * 2**retried)
            retried += 1
            yield [Retrying(attempt=retried, delay=delay, kind=failure.kind, reason=str(failure))]
            await within(deadline, self._clock.sleep(delay))

    async def _attempt(self, request: Request, deadline: float | None) -> AsyncGenerator[ReplyPart, None]:
        body = self._encoder.encode(request)
        reading = self._encoder.reading(request)
        answer = await _guarded(deadline, _called(self._generate, _asked(body, reading)))
        said: list[str] = []
        if isinstance(answer, AsyncIterator):
            pieces = cast("AsyncIterator[object]", answer)
            answer = None
            try:
                while (piece := await _guarded(deadline, anext(pieces, _END))) is not _END:
                    if answer is not None:
                        raise InvalidReply(f"generate went on after its reply, with {piece!r:.200}. {_EXPECTED}")
                    if not isinstance(piece, str):
                        answer = piece
                    elif piece:
                        said.append(clean_text(piece))
                        yield [TextDelta(said[-1])]
            finally:
                if isinstance(pieces, AsyncGenerator):
                    await _guarded(None, pieces.aclose())
            if answer is None:
                pieces_said = f"{len(said)} {'piece' if len(said) == 1 else 'pieces'}"
                raise IncompleteReply(f"generate ended after {pieces_said} of text, without a dict. {_EXPECTED}")
        shown = "".join(said)
        reply = self._read(answer, shown, request, reading)
        if rest := reply.text[len(shown) :]:
            yield [TextDelta(rest)]
        yield reply

    def _read(self, given: object, shown: str, request: Request, reading: Reading) -> Reply:
        if not isinstance(given, Mapping):
            raise InvalidReply(f"generate gave a {type(given).__name__}: {given!r:.200}. {_EXPECTED}")
        answer = cast("Mapping[str, Any]", given)
        message: dict[str, Any] = {"role": "assistant", "content": _content(answer, shown)}
        calls = answer.get("tool_calls") or ()
        if calls:
            # Unique in the whole transcript, since it grows from step to step; and the same in each run.
            message["tool_calls"] = _calls(calls, prefix=f"call_{len(request.messages)}_")
        finish = "tool_calls" if calls else "stop"
        body: dict[str, Any] = {
            "model": request.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        }
        usage = _usage(answer.get("usage"))
        if isinstance(usage, Usage):
            return dataclasses.replace(self._dialect.decode(body, reading), usage=usage)
        return self._dialect.decode({**body, "usage": usage}, reading)


_END = object()


async def _called(generate: Generate, asked: dict[str, Any]) -> object:
    """Call `generate`, in a worker thread unless it says that it is async."""
    answer: object
    if _callbacks.is_async(generate):
        answer = generate(asked)
    else:
        from toolnexus import _workers

        answer = await _workers.run(generate, asked)
    return await answer if inspect.isawaitable(answer) else answer


async def _guarded(deadline: float | None, awaitable: Awaitable[Any]) -> Any:
    """Await something of the user's. What it raises becomes a `ProviderError`."""
    try:
        return await within(deadline, awaitable)
    except ToolnexusError:
        raise
    except Exception as error:
        raise ProviderError(f"generate raised {type(error).__name__}: {error}", kind="server") from error


def _asked(body: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """What `generate` gets: a copy that it may change, with the tools' own names."""
    messages, tools = copy_json(body["messages"]), copy_json(body.get("tools", []))
    if reading.names:
        entries = [entry for message in messages for entry in message.get("tool_calls", ())]
        for entry in [*entries, *tools]:
            function = entry["function"]
            function["name"] = reading.names.get(function["name"], function["name"])
    return {"messages": messages, "tools": tools, "model": reading.model}


def _content(answer: Mapping[str, Any], shown: str) -> str:
    content = answer.get("content")
    if content is None and not shown and not answer.get("tool_calls"):
        raise InvalidReply(f"generate gave neither content nor tool_calls, but the keys {sorted(answer)}. {_EXPECTED}")
    if not isinstance(content, str | None):
        raise InvalidReply(f"content is a {type(content).__name__}: {content!r:.200}. {_EXPECTED}")
    text = clean_text(content or shown)
    if not text.startswith(shown):
        raise InvalidReply(f"content is {text!r:.200}, but the pieces before it were {shown!r:.200}. Leave one out.")
    return text


def _calls(calls: object, *, prefix: str) -> list[dict[str, Any]]:
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise InvalidReply(f"tool_calls is a {type(calls).__name__}: {calls!r:.200}. {_EXPECTED}")
    return [_call(entry, f"{prefix}{position}") for position, entry in enumerate(cast("Sequence[object]", calls))]


def _call(entry: object, default_id: str) -> dict[str, Any]:
    from toolnexus import _json

    fields = cast("Mapping[str, Any]", entry if isinstance(entry, Mapping) else {})
    name, arguments, call_id = fields.get("name"), fields.get("arguments"), fields.get("id")
    if not isinstance(name, str) or not name or not isinstance(call_id, str | None):
        raise InvalidReply(f"A tool call is {entry!r:.200}. {_EXPECTED}")
    if isinstance(arguments, Mapping):
        try:
            arguments = _json.dumps(dict(cast("Mapping[str, Any]", arguments)), "arguments").decode()
        except ValueError as error:
            raise InvalidReply(f"The arguments of a call of {name!r} are no JSON: {error}") from error
    elif not isinstance(arguments, str | None):
        raise InvalidReply(f"The arguments of a call of {name!r} are {arguments!r:.200}. {_EXPECTED}")
    function = {"name": name, "arguments": arguments or "{}"}
    return {"id": call_id or default_id, "type": "function", "function": function}


def _usage(given: object) -> Usage | Mapping[str, Any] | None:
    """Token counts: ours, or the fields of that other API for its dialect to read."""
    if isinstance(given, Usage | None):
        return given
    try:
        usage = cast("Mapping[str, Any]", given)
        if "prompt_tokens" in usage or "completion_tokens" in usage:
            return usage
        counted = Usage(**usage)
        return counted if counted.total else dataclasses.replace(counted, total=counted.prompt + counted.completion)
    except TypeError as error:
        fields = ", ".join(field.name for field in dataclasses.fields(Usage))
        raise InvalidReply(f"usage is {given!r:.200}. Expected whole numbers of tokens: {fields}.") from error
