"""What is logged of a run."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from scripts import read, scripted

from toolnexus import ProviderError
from toolnexus.testing import call, openai_reply, openai_stream
from toolnexus.transport import Response

DONE = openai_reply("A secret answer.")
REFUSED = Response(status=400, headers={}, body=b'{"error": {"message": "hunter2"}}')
DOWN = Response(status=503, headers={}, body=b'{"error": {"message": "hunter2"}}')


async def add(a: int, b: int) -> int:
    return a + b


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """What a record has beside what every record has."""
    plain = logging.makeLogRecord({}).__dict__.keys() | {"message", "asctime", "taskName"}
    return {name: value for name, value in record.__dict__.items() if name not in plain}


async def test_at_info_the_end_of_a_run_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolnexus")
    client, _ = scripted(openai_reply(calls=[call("add", a=2, b=3)]), DONE)
    result = await client.run("go", [add])

    [record] = caplog.records
    assert (record.name, record.levelname) == ("toolnexus", "INFO")
    told = fields(record)
    assert told.pop("seconds") > 0
    assert told == {
        "event": "run_ended",
        "run_id": result.turn_id,
        "status": "done",
        "kind": None,
        "steps": 2,
        "prompt_tokens": 20,
        "completion_tokens": 10,
    }


async def test_at_debug_there_is_a_line_for_each_request_reply_and_call(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "toolnexus")
    client, _ = scripted(openai_stream(calls=[call("add", a=2, b=3)]), openai_stream("5"))
    await read(client.stream("go", [add], id="anna@example.com"))

    told = [fields(record) for record in caplog.records if "event" in fields(record)]
    assert [each["event"] for each in told] == [
        *("run_started", "request", "reply", "tool", "request", "reply", "run_ended"),
    ]
    assert len({each["run_id"] for each in told}) == 1
    assert len({each["conversation"] for each in told}) == 1
    assert told[3] == {**told[3], "tool": "add", "is_error": False}


async def test_nothing_that_was_said_and_no_id_of_a_conversation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "toolnexus")
    client, _ = scripted(
        openai_reply("A secret thought.", calls=[call("secret_tool"), call("add", a=4711, b=1)]),
        *(DONE, DOWN, REFUSED),
        api_key="sk-secret",
        retries=1,
        max_retry_wait=0,
    )
    await client.ask("A secret question?", [add], id="secret@example.com")
    with pytest.raises(ProviderError, match="hunter2"):
        await client.run("go")

    records = [record for record in caplog.records if "event" in fields(record)]
    assert [fields(record)["event"] for record in records][-4:] == ["run_started", "request", "retry", "run_ended"]
    assert fields(records[-1])["kind"] == "bad_request"
    for record in records:
        everything = record.getMessage() + repr(fields(record))
        assert not [word for word in ("secret", "4711", "hunter2") if word in everything]


async def test_a_process_that_wants_warnings_alone_gets_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "toolnexus")
    client, _ = scripted(DONE)
    await client.run("go")
    assert not caplog.records
