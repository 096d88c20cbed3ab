"""One run of a case through the public client against the local server, and what was seen of it."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from corpus_runner import house_rules, transcripts
from corpus_runner.cases import DEFAULT_PROMPT, Ask, Play, ToolSpec
from corpus_runner.server import Seen, Server, serving
from corpus_runner.wires import WIRES, Wire
from toolnexus.client import Client, create_client
from toolnexus.errors import ToolnexusError
from toolnexus.events import CallRecord, Event, Finished, RunResult, StepFinished, TextDelta, Usage
from toolnexus.messages import normalise, repair
from toolnexus.stores.memory import InMemoryConversationStore
from toolnexus.testing import Rewrite
from toolnexus.tools import Tool, ToolContext
from toolnexus.transport import Limits, Response, StreamedResponse, Transport
from toolnexus.transport.http import HTTPTransport

API_KEY: Final = "canary-5f1c9e-key"
NEXT_PROMPT: Final = "And then?"

_CONVERSATION = "corpus"
_SECONDS = 20.0
"""A case that takes longer hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRun:
    """A call of a tool function."""

    name: str
    arguments: Any
    call_id: str
    step: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The message made from the last listed answer, or what there was of it when the run failed."""

    text: str
    reasoning: str
    deltas: tuple[str, ...]
    calls: tuple[CallRecord, ...]
    finish_reason: str | None
    usage: Usage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run did.

    Attributes:
        result: What the client returned. None: it raised.
        error: What it raised.
        shown: The text pieces that the caller saw, by reply; the last one may have ended early.
        tool_runs: The tool functions that were called, in call order.
        seen: The requests.
        urls: What the client called, before it was redirected to the local server.
        delays: Seconds slept before request 2, 3, ….
        broken_rules: What was found against the rules of `house_rules`.
        roundtrip: What is wrong with the conversation after saving and loading it.
    """

    wire: Wire
    result: RunResult | None
    error: ToolnexusError | None
    shown: tuple[tuple[str, ...], ...]
    tool_runs: tuple[ToolRun, ...]
    seen: tuple[Seen, ...]
    urls: tuple[str, ...]
    delays: tuple[float, ...]
    broken_rules: tuple[str, ...]
    roundtrip: tuple[str, ...]

    @property
    def said(self) -> Said:
        if self.result is None:
            partial = self.error.partial if self.error else None
            return Said(
                text=partial.text if partial else "",
                reasoning=partial.reasoning if partial else "",
                deltas=self.shown[-1],
                calls=(),
                finish_reason=partial.finish_reason if partial else None,
                usage=partial.usage if partial else None,
            )
        # Each `end` after the listed answers made one step; without listed answers, `end` is what there is.
        ends = sum(not request.listed for request in self.seen)
        place = max(0, len(self.result.steps) - 1 - (ends if ends < len(self.seen) else 0))
        step = self.result.steps[place]
        return Said(
            text=step.text,
            reasoning=step.reasoning,
            deltas=self.shown[place] if place < len(self.shown) else (),
            calls=step.calls,
            finish_reason=step.finish_reason,
            usage=step.usage,
        )


async def drive(play: Play, *, cut: int | None = None, retries: int | None = None) -> Outcome:
    """Run a case once.

    Args:
        cut: Size of the server's reads in bytes. None: as listed.
        retries: In place of what the case says. None: as it says.
    """
    ask = play.ask if retries is None else dataclasses.replace(play.ask, max_retries=retries)
    server = Server(WIRES[play.style], play.script, tools=ask.tools or (), cut=cut)
    async with asyncio.timeout(_SECONDS), serving(server):
        return await _Drive(dataclasses.replace(play, ask=ask), server).run()


class _Drive:
    def __init__(self, play: Play, server: Server) -> None:
        self._play = play
        self._ask = play.ask
        self._server = server
        self._wire = WIRES[play.style]
        self._urls: list[str] = []
        self._sleeps: list[tuple[int, float]] = []
        self._workshop = Workshop(self._ask)
        self._store = InMemoryConversationStore()

    async def run(self) -> Outcome:
        stored = self._play.transcript
        history = None if stored is None else transcripts.history(stored, self._ask.model)
        given = (history, self._ask.options, [tool.parameters for tool in self._ask.tools or ()])
        before = copy.deepcopy(given)
        shown: list[list[str]] = [[]]
        result: RunResult | None = None
        error: ToolnexusError | None = None
        try:
            result = await self._turn(history, shown)
        except ToolnexusError as failure:
            error = failure
        seen, urls, tool_runs = tuple(self._server.seen), tuple(self._urls), self._workshop.in_order()
        rules = [*house_rules.of_requests(seen, self._wire), *house_rules.of_errors(error, API_KEY)]
        if given != before:
            rules.append("what the caller handed over was changed")
        rules += house_rules.of_runs((run.step, run.position) for run in tool_runs)
        roundtrip: list[str] = []
        self._server.end_from_here()
        if result is not None:
            rules += house_rules.of_transcripts(self._play.transcript or (), result.messages)
            roundtrip = await self._roundtrip(result)
        elif history is None:
            rules += await self._after_failure(acted=bool(tool_runs))
        follow_ups = self._server.seen[len(seen) :]
        rules += [f"in the next turn: {rule}" for rule in house_rules.of_requests(follow_ups, self._wire)]
        return Outcome(
            wire=self._wire,
            result=result,
            error=error,
            shown=tuple(tuple(pieces) for pieces in shown),
            tool_runs=tool_runs,
            seen=seen,
            urls=urls,
            delays=tuple(
                sum(seconds for after, seconds in self._sleeps if after == number) for number in range(1, len(seen))
            ),
            broken_rules=tuple(rules),
            roundtrip=tuple(roundtrip),
        )

    async def _turn(self, history: list[dict[str, Any]] | None, shown: list[list[str]]) -> RunResult:
        prompt = self._prompt(history)
        memory: dict[str, Any] = {"history": history} if history is not None else {"id": _CONVERSATION}
        async with self._client(self._store) as client:
            if not self._ask.stream:
                verb = client.ask if history is None else client.run
                return await verb(prompt, self._workshop.tools, **memory)
            async with client.stream(prompt, self._workshop.tools, **memory) as events:
                return await _watched(events, shown)

    def _prompt(self, history: list[dict[str, Any]] | None) -> Any:
        """The case's prompt. A stored conversation that waits for an answer needs none."""
        if self._ask.prompt is not None:
            return transcripts.content(self._ask.prompt)
        repaired = repair(normalise(history or []))[0]
        return None if repaired and repaired[-1]["role"] in ("user", "tool") else DEFAULT_PROMPT

    async def _roundtrip(self, result: RunResult) -> list[str]:
        """Save and load the conversation, and see that the turns and the next request are the same."""
        messages = result.messages
        found: list[str] = []
        if self._play.transcript is None and await self._store.get(_CONVERSATION) != messages:
            found.append("the store has other messages than the result")
        copies = InMemoryConversationStore()
        await copies.save(_CONVERSATION, messages)
        if await copies.get(_CONVERSATION) != messages:
            found.append("the messages change when they are saved and loaded")
        async with self._client(copies) as client:
            await client.run(NEXT_PROMPT, self._workshop.tools, history=messages)
        async with self._client(copies) as client:
            await client.ask(NEXT_PROMPT, self._workshop.tools, id=_CONVERSATION)
        kept, loaded = (request.body for request in self._server.seen[-2:])
        if kept.json != loaded.json:
            found.append(f"the next request differs: {kept.raw!r} from memory, {loaded.raw!r} from the store")
        return found

    async def _after_failure(self, *, acted: bool) -> list[str]:
        """A turn that failed is remembered if it acted, and then its conversation can go on."""
        remembered = await self._store.get(_CONVERSATION)
        if (remembered is not None) is not acted:
            return [f"a failed turn that {'ran' if acted else 'ran no'} tools left {remembered!r} in the store"]
        if acted:
            async with self._client(self._store) as client:
                await client.ask(NEXT_PROMPT, self._workshop.tools, id=_CONVERSATION)
        return []

    @asynccontextmanager
    async def _client(self, store: InMemoryConversationStore) -> AsyncIterator[Client]:
        ask = self._ask
        base_url = ask.base_url or self._wire.base_url
        chosen = {
            "retries": ask.max_retries,
            "max_steps": ask.max_turns,
            "max_tokens": ask.max_tokens,
            "request_params": ask.options,
        }
        address = f"127.0.0.1:{self._server.port}"
        transport = Spy(Rewrite(HTTPTransport(), {urlsplit(base_url).netloc: address}), self._urls)
        client = create_client(
            ask.model,
            base_url=base_url,
            style=self._play.style,
            api_key=API_KEY,
            store=store,
            transport=transport,
            clock=FrozenClock(ask.now, self._slept),
            **{name: value for name, value in chosen.items() if value is not None},
        )
        try:
            yield client
        finally:
            await client.aclose()
            await transport.aclose()

    def _slept(self, seconds: float) -> None:
        self._sleeps.append((len(self._server.seen), seconds))


async def _watched(events: AsyncIterator[Event], shown: list[list[str]]) -> RunResult:
    async for event in events:
        match event:
            case TextDelta(text):
                shown[-1].append(text)
            case StepFinished():
                shown.append([])
            case Finished(result=result):
                return result
            case _:
                pass
    raise AssertionError("the stream ended without Finished or an error")


@dataclass
class FrozenClock:
    """A clock that stands still; whoever sleeps is told on and goes on at once."""

    moment: float
    slept: Callable[[float], None]

    def now(self) -> float:
        return self.moment

    async def sleep(self, seconds: float) -> None:
        self.slept(seconds)


@dataclass
class Spy:
    """A transport that notes the URLs it is asked for."""

    inner: Transport
    urls: list[str]

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes, limits: Limits) -> Response:
        self.urls.append(url)
        return await self.inner.post(url, headers=headers, body=body, limits=limits)

    def stream(
        self, url: str, *, headers: Mapping[str, str], body: bytes, limits: Limits
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        self.urls.append(url)
        return self.inner.stream(url, headers=headers, body=body, limits=limits)

    async def aclose(self) -> None:
        await self.inner.aclose()


@dataclass
class Workshop:
    """The case's tools, and the record of their work. `tools` is None if the case offers none at all."""

    ask: Ask
    tools: list[Tool] | None = field(init=False)
    runs: list[ToolRun] = field(default_factory=list[ToolRun])

    def __post_init__(self) -> None:
        self.tools = None if self.ask.tools is None else [self._tool(spec) for spec in self.ask.tools]

    def in_order(self) -> tuple[ToolRun, ...]:
        return tuple(sorted(self.runs, key=lambda run: (run.step, run.position)))

    def _tool(self, spec: ToolSpec) -> Tool:
        async def execute(arguments: dict[str, Any], ctx: ToolContext) -> Any:
            kept = copy.deepcopy(arguments)
            before = sum(run.name == spec.name for run in self.runs)
            self.runs.append(
                ToolRun(name=spec.name, arguments=kept, call_id=ctx.call_id, step=ctx.step, position=ctx.position)
            )
            returns = self.ask.tool_returns.get(spec.name, "ok")
            return returns[min(before, len(returns) - 1)] if isinstance(returns, list) and returns else returns

        schema: dict[str, Any] = {} if spec.parameters is None else {"input_schema": spec.parameters}
        return Tool(name=spec.name, description=spec.description, execute=execute, **schema)
