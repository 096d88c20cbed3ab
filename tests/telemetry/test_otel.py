"""Spans and metrics, as the SDK's exporters in memory get them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from scripts import read, scripted

from toolnexus import ConfigurationError, ProviderError, Telemetry, create_client, suspend
from toolnexus.testing import anthropic_reply, anthropic_stream, call, openai_reply, openai_stream
from toolnexus.transport import Response

DONE = openai_reply("Done.")
REFUSED = Response(status=400, headers={}, body=b'{"error": {"message": "I will not say \'hunter2\'"}}')
DOWN = Response(status=503, headers={}, body=b'{"error": {"message": "down"}}')


class Seen:
    """What a client sent."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider(metric_readers=[self.reader])
        self.telemetry = Telemetry(tracer_provider=self.tracers, meter_provider=self.meters)

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """The spans that ended, by name; each name once."""
        finished = self.exporter.get_finished_spans()
        by_name = {span.name: span for span in finished}
        assert len(by_name) == len(finished)
        return by_name

    def points(self, name: str) -> list[Any]:
        """The data points of one metric."""
        data = self.reader.get_metrics_data()
        metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data else []
        return [point for metric in metrics if metric.name == name for point in metric.data.data_points]


@pytest.fixture
def seen() -> Iterator[Seen]:
    made = Seen()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def own(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


async def add(a: int, b: int) -> int:
    return a + b


async def test_a_run_is_an_agent_span_with_its_requests_and_calls_below(seen: Seen) -> None:
    client, _ = scripted(
        openai_reply(calls=[call("add", a=2, b=3)], model="m-2026"), DONE, telemetry=seen.telemetry, max_tokens=99
    )
    await client.ask("go", [add], id="user-42")

    first, call_span, second, agent = seen.exporter.get_finished_spans()
    assert [span.name for span in (first, call_span, second, agent)] == [
        "chat m",
        "execute_tool add",
        "chat m",
        "invoke_agent",
    ]
    assert parent(agent) is None
    assert {parent(span) for span in (first, call_span, second)} == {own(agent)}
    assert [span.kind for span in (agent, first, call_span)] == [SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL]
    assert attributes(agent) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.request.model": "m",
        "gen_ai.conversation.id": "user-42",
        "gen_ai.response.model": "m",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 10,
        "toolnexus.status": "done",
    }
    assert attributes(first) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": "user-42",
        "gen_ai.request.model": "m",
        "gen_ai.request.max_tokens": 99,
        "gen_ai.response.id": "cmp-1",
        "gen_ai.response.model": "m-2026",
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "server.address": "model.test",
        "server.port": 443,
    }
    assert attributes(call_span) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.conversation.id": "user-42",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": "call_1",
        "toolnexus.tool.outcome": "ok",
    }
    assert all(span.status.status_code is StatusCode.UNSET for span in (first, call_span, second, agent))


async def test_usage_is_told_in_detail_and_the_provider_by_its_usual_name(seen: Seen) -> None:
    answer = anthropic_reply("5")
    answer["usage"] = {
        "input_tokens": 3,
        "cache_read_input_tokens": 10,
        "cache_creation_input_tokens": 5,
        "output_tokens": 2,
    }
    client, _ = scripted(answer, telemetry=seen.telemetry, base_url="https://api.anthropic.com", style="anthropic")
    await client.run("go")

    about = attributes(seen.spans["chat m"])
    assert about["gen_ai.provider.name"] == "anthropic"
    assert about["gen_ai.response.id"] == answer["id"]
    assert {name: value for name, value in about.items() if name.startswith("gen_ai.usage.")} == {
        "gen_ai.usage.input_tokens": 18,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 10,
        "gen_ai.usage.cache_write.input_tokens": 5,
    }


@pytest.mark.parametrize(
    ("style", "whole", "stream"),
    [("openai", openai_reply, openai_stream), ("anthropic", anthropic_reply, anthropic_stream)],
)
async def test_the_id_of_a_reply_is_told_in_either_framing(style: str, whole: Any, stream: Any, seen: Seen) -> None:
    client, _ = scripted(whole("a"), stream("a"), telemetry=seen.telemetry, base_url="https://model.test", style=style)
    await client.run("go")
    await read(client.stream("go"))
    chats = [span for span in seen.exporter.get_finished_spans() if span.name == "chat m"]
    assert {attributes(span)["gen_ai.response.id"] for span in chats} == {whole("a")["id"]}
    assert [attributes(span).get("gen_ai.request.stream") for span in chats] == [None, True]
    assert "gen_ai.response.time_to_first_chunk" in attributes(chats[1])


async def test_what_a_tool_traces_is_below_its_call_wherever_it_runs(seen: Seen) -> None:
    tracer = seen.tracers.get_tracer("host")

    async def on_the_loop() -> str:
        with tracer.start_as_current_span("inside on_the_loop"):
            return "ok"

    def in_a_thread() -> str:
        with tracer.start_as_current_span("inside in_a_thread"):
            return "ok"

    async def with_a_timeout() -> str:
        await asyncio.sleep(0)
        with tracer.start_as_current_span("inside with_a_timeout"):
            return "ok"

    tools = [on_the_loop, in_a_thread, with_a_timeout]
    client, _ = scripted(
        openai_reply(calls=[call(each.__name__) for each in tools]), DONE, telemetry=seen.telemetry, timeout=60
    )
    with tracer.start_as_current_span("request of a user"):
        await client.run("go", tools)
        assert trace.get_current_span().is_recording(), "the caller's span is current again"

    finished = seen.exporter.get_finished_spans()
    spans = {span.name: span for span in finished}
    for each in tools:
        assert parent(spans[f"inside {each.__name__}"]) == own(spans[f"execute_tool {each.__name__}"])
    assert parent(spans["invoke_agent"]) == own(spans["request of a user"])


async def test_a_run_inside_a_tool_is_below_its_call(seen: Seen) -> None:
    inner, _ = scripted(DONE, telemetry=seen.telemetry)

    async def delegate() -> str:
        return (await inner.run("go")).text

    outer, _ = scripted(openai_reply(calls=[call("delegate")]), DONE, telemetry=seen.telemetry)
    await outer.run("go", [delegate])

    agents = [span for span in seen.exporter.get_finished_spans() if span.name == "invoke_agent"]
    delegated = next(span for span in seen.exporter.get_finished_spans() if span.name == "execute_tool delegate")
    assert [parent(span) for span in agents] == [own(delegated), None]


async def test_the_blocking_verbs_are_below_the_span_of_their_caller(seen: Seen) -> None:
    client, _ = scripted(DONE, telemetry=seen.telemetry)

    def work() -> None:
        with seen.tracers.get_tracer("host").start_as_current_span("request of a user"):
            client.run_sync("go")
        client.close()

    await asyncio.to_thread(work)
    assert parent(seen.spans["invoke_agent"]) == own(seen.spans["request of a user"])


async def test_a_failed_request_fails_its_span_and_the_run_and_nothing_that_it_said_is_told(seen: Seen) -> None:
    client, _ = scripted(REFUSED, telemetry=seen.telemetry)
    with pytest.raises(ProviderError, match="hunter2"):
        await client.run("go")

    for name in ("chat m", "invoke_agent"):
        span = seen.spans[name]
        assert span.status.status_code is StatusCode.ERROR
        assert attributes(span)["error.type"] == "bad_request"
        assert "hunter2" not in span.to_json()
    assert attributes(seen.spans["invoke_agent"])["toolnexus.status"] == "failed"
    [point] = seen.points("gen_ai.client.inference.duration")
    assert point.attributes["error.type"] == "bad_request"


async def test_a_tool_that_fails_fails_its_span_alone(seen: Seen) -> None:
    async def broken() -> None:
        raise ValueError("hunter2")

    client, _ = scripted(openai_reply(calls=[call("broken"), call("invented")]), DONE, telemetry=seen.telemetry)
    await client.run("go", [broken])

    finished = {span.name: span for span in seen.exporter.get_finished_spans()}
    for name in ("execute_tool broken", "execute_tool"):
        assert finished[name].status.status_code is StatusCode.ERROR
        assert attributes(finished[name])["error.type"] == "tool_error"
        assert "hunter2" not in finished[name].to_json()
        assert "invented" not in finished[name].to_json()
    assert finished["invoke_agent"].status.status_code is StatusCode.UNSET


async def test_a_cancelled_run_ends_all_its_spans(seen: Seen) -> None:
    started = asyncio.Event()

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    client, _ = scripted(openai_reply(calls=[call("hang")]), telemetry=seen.telemetry)
    running = asyncio.ensure_future(client.run("go", [hang]))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert [span.name for span in seen.exporter.get_finished_spans()] == ["chat m", "execute_tool hang", "invoke_agent"]
    for name in ("execute_tool hang", "invoke_agent"):
        assert attributes(seen.spans[name])["error.type"] == "cancelled"
    assert attributes(seen.spans["execute_tool hang"])["toolnexus.tool.outcome"] == "cancelled"
    assert attributes(seen.spans["invoke_agent"])["toolnexus.status"] == "cancelled"


async def test_a_reader_that_leaves_ends_the_span_of_the_request(seen: Seen) -> None:
    client, _ = scripted(openai_stream("a", "b", "c"), telemetry=seen.telemetry)
    async with client.stream("go") as events:
        await anext(aiter(events))
    assert attributes(seen.spans["chat m"])["error.type"] == "cancelled"
    assert attributes(seen.spans["invoke_agent"])["toolnexus.status"] == "cancelled"


async def test_a_call_that_waits_for_a_person_is_no_error(seen: Seen) -> None:
    async def ask_first() -> Any:
        return suspend("question", "Really?")

    client, _ = scripted(openai_reply(calls=[call("ask_first")]), telemetry=seen.telemetry)
    assert (await client.run("go", [ask_first])).status == "pending"

    waiting = seen.spans["execute_tool ask_first"]
    assert waiting.status.status_code is StatusCode.UNSET
    assert attributes(waiting)["toolnexus.tool.outcome"] == "suspended"
    assert attributes(seen.spans["invoke_agent"])["toolnexus.status"] == "pending"


async def test_a_retry_is_an_event_of_its_request_and_a_fallback_another_request(seen: Seen) -> None:
    client, _ = scripted(
        *(DOWN, DOWN, openai_reply(calls=[call("add", a=2, b=3)], model="n"), openai_reply("5", model="n")),
        telemetry=seen.telemetry,
        retries=1,
        max_retry_wait=0,
        fallbacks=[{"model": "n", "base_url": "https://other.test/v1"}],
    )
    await client.run("go", [add])

    first, second, _, third, _ = seen.exporter.get_finished_spans()
    assert [span.name for span in (first, second, third)] == ["chat m", "chat n", "chat n"]
    assert [event.name for event in first.events] == ["retry"]
    assert first.status.status_code is StatusCode.ERROR
    assert attributes(second)["server.address"] == attributes(third)["server.address"] == "other.test"
    assert attributes(third)["gen_ai.request.model"] == "n"


async def test_content_is_told_only_when_it_was_asked_for(seen: Seen) -> None:
    def steps() -> list[Any]:
        return [openai_reply("Let me.", calls=[call("add", a=2, b=3)]), openai_reply("It is 5.")]

    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    prompt = [{"type": "text", "text": "2 + 3?"}, image]
    client, _ = scripted(*steps(), telemetry=seen.telemetry, system_prompt="Be brief.")
    await client.run(prompt, [add])
    for span in seen.exporter.get_finished_spans():
        for said in ("2 + 3?", "Let me.", "It is 5.", "Be brief."):
            assert said not in span.to_json()
        assert not {"gen_ai.tool.call.arguments", "gen_ai.tool.call.result"} & attributes(span).keys()
    seen.exporter.clear()

    client, _ = scripted(*steps(), telemetry=seen.telemetry, system_prompt="Be brief.", capture_content=True)
    await client.run(prompt, [add])
    first, ran, second, _ = map(attributes, seen.exporter.get_finished_spans())
    assert json.loads(first["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    assert json.loads(first["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "2 + 3?"}, {"type": "image_url"}]}
    ]
    asked = {"type": "tool_call", "id": "call_1", "name": "add", "arguments": '{"a":2,"b":3}'}
    [told] = json.loads(first["gen_ai.output.messages"])
    assert told["parts"][0] == {"type": "text", "content": "Let me."}
    assert {**told["parts"][1], "arguments": json.loads(told["parts"][1]["arguments"])} == {
        **asked,
        "arguments": {"a": 2, "b": 3},
    }
    assert json.loads(ran["gen_ai.tool.call.arguments"]) == {"a": 2, "b": 3}
    assert ran["gen_ai.tool.call.result"] == "5"
    assert json.loads(second["gen_ai.input.messages"])[-1]["parts"] == [
        {"type": "tool_call_response", "id": "call_1", "response": "5"}
    ]


async def test_keys_are_in_no_span_not_even_with_content(seen: Seen) -> None:
    client, _ = scripted(
        REFUSED, telemetry=seen.telemetry, capture_content=True, api_key="sk-hunter2", headers={"x-more": "hunter2"}
    )
    with pytest.raises(ProviderError):
        await client.run("go")
    assert not [span.name for span in seen.exporter.get_finished_spans() if "hunter2" in span.to_json()]


async def test_durations_and_tokens_are_measured_with_few_values_of_attributes(seen: Seen) -> None:
    invented = [call(f"invented_{number}") for number in range(50)]
    client, _ = scripted(
        openai_stream(calls=[*invented, call("add", a=1, b=2)]), openai_stream("5"), telemetry=seen.telemetry
    )
    await read(client.stream("go", [add], id="anna"))

    tools = {point.attributes["gen_ai.tool.name"]: point.count for point in seen.points("gen_ai.execute_tool.duration")}
    assert tools == {"other": 50, "add": 1}
    [asked] = seen.points("gen_ai.client.inference.duration")
    assert asked.count == 2
    assert dict(asked.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m",
        "server.address": "model.test",
        "server.port": 443,
    }
    [first] = seen.points("gen_ai.client.inference.time_to_first_chunk")
    assert first.count == 1, "the first reply was nothing but calls"
    [read_tokens] = seen.points("gen_ai.client.inference.usage.input_tokens")
    [written_tokens] = seen.points("gen_ai.client.inference.usage.output_tokens")
    assert (read_tokens.value, written_tokens.value) == (20, 10)
    [ran] = seen.points("gen_ai.invoke_agent.duration")
    assert dict(ran.attributes) == {"gen_ai.operation.name": "invoke_agent", "toolnexus.status": "done"}


async def test_a_recorded_result_asks_no_model(seen: Seen) -> None:
    client, _ = scripted(DONE, telemetry=seen.telemetry)
    await client.ask("go", id="c", key="k")
    seen.exporter.clear()
    await client.ask("go", id="c", key="k")
    assert attributes(seen.spans["invoke_agent"])["toolnexus.status"] == "replayed"


class Broken:
    """Tracers and spans that raise, whatever is asked of them."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("the tracer is broken")


class BreaksLater:
    """A provider whose tracers raise."""

    def get_tracer(self, *args: Any, **options: Any) -> Any:
        return Broken()


@pytest.mark.parametrize("provider", [Broken(), BreaksLater()], ids=["at once", "later"])
async def test_a_tracer_that_raises_ends_no_run(provider: Any, seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    client, _ = scripted(
        openai_reply(calls=[call("add", a=2, b=3)]), DONE, telemetry=Telemetry(tracer_provider=provider)
    )
    result = await client.run("go", [add])
    assert (result.text, result.tool_calls[0].output) == ("Done.", "5")
    assert "the run goes on" in caplog.text


class BreaksInside(TracerProvider):
    """A provider whose spans raise once they are there."""

    def get_tracer(self, *args: Any, **options: Any) -> Any:
        tracer = super().get_tracer(*args, **options)

        class Spans:
            def start_span(self, *args: Any, **options: Any) -> Any:
                span = tracer.start_span(*args, **options)
                span.set_attribute = span.set_attributes = span.end = Broken().__getattr__  # type: ignore[method-assign]
                return span

        return Spans()


async def test_spans_that_raise_end_no_run_and_leave_the_context_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    current: list[bool] = []

    async def look() -> str:
        current.append(trace.get_current_span().get_span_context().is_valid)
        return "ok"

    provider = BreaksInside()
    client, _ = scripted(openai_reply(calls=[call("look")]), DONE, telemetry=Telemetry(tracer_provider=provider))
    assert (await client.run("go", [look])).text == "Done."
    assert current == [True]
    assert not trace.get_current_span().get_span_context().is_valid
    assert "the run goes on" in caplog.text
    provider.shutdown()


def test_what_telemetry_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="telemetry is 'yes'"):
        create_client("m", base_url="https://model.test", telemetry="yes")  # type: ignore[arg-type]


GO = """
import asyncio, sys
{before}
from toolnexus import create_in_process_client
client = create_in_process_client(generate=lambda request: {{"content": "5"}}{options})
asyncio.run(client.run("go"))
{after}
"""


def run_in_a_process_of_its_own(*, before: str = "", options: str = "", after: str = "") -> str:
    program = GO.format(before=before, options=options, after=after)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SET_UP = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
"""
TOLD = "print(*(span.name for span in exporter.get_finished_spans()))"


def test_it_is_on_when_the_process_has_set_it_up() -> None:
    assert run_in_a_process_of_its_own(before=SET_UP, after=TOLD) == "chat in-process invoke_agent"


def test_it_can_be_switched_off() -> None:
    assert run_in_a_process_of_its_own(before=SET_UP, options=", telemetry=False", after=TOLD) == ""


def test_it_is_not_imported_unless_it_is_there_or_asked_for() -> None:
    loaded = "print('opentelemetry' in sys.modules, 'toolnexus.telemetry.otel' in sys.modules)"
    assert run_in_a_process_of_its_own(after=loaded) == "False False"
    assert run_in_a_process_of_its_own(before="import opentelemetry.trace", after=loaded) == "True False"
    assert run_in_a_process_of_its_own(options=", telemetry=True", after=loaded) == "True True"


RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "model": "m",
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "5"}]}],
}
CANDIDATES = {
    "responseId": "gem-1",
    "modelVersion": "m",
    "candidates": [{"content": {"role": "model", "parts": [{"text": "5"}]}, "finishReason": "STOP"}],
}


@pytest.mark.parametrize(
    ("style", "answer", "id"), [("responses", RESPONSE, "resp_1"), ("gemini", CANDIDATES, "gem-1")]
)
async def test_other_styles_tell_the_id_of_a_reply_too(style: str, answer: Any, id: str, seen: Seen) -> None:
    client, _ = scripted(answer, telemetry=seen.telemetry, base_url="https://model.test/v1", style=style)
    assert (await client.run("go")).text == "5"
    assert attributes(seen.spans["chat m"])["gen_ai.response.id"] == id
