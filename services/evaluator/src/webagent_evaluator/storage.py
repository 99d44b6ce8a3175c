"""Evidence as it travels in a verdict, which travels in a trajectory and so must stay small.

A long reading is compressed; one for which no room is left loses its value and keeps its place. A verdict that needs
such a reading cannot be reached again, and says so.
"""

from __future__ import annotations

import json
import zlib

from webagent.evaluator.v1 import evaluator_pb2 as pb

from webagent_evaluator.evidence import Evidence, parse
from webagent_evaluator.judge import Exchange, Kind, Question
from webagent_evaluator.locators import Query, Reading
from webagent_evaluator.verdicts import NoVerdictError

MAX_PLAIN_BYTES = 4 * 1024
MAX_STORED_BYTES = 96 * 1024
MAX_READ_BYTES = 64 * 1024 * 1024


def store(evidence: Evidence) -> pb.Evidence:
    """Evidence as a message."""
    message = pb.Evidence(final_url=evidence.final_url)
    room = MAX_STORED_BYTES
    for query, reading in evidence.readings.items():
        stored = message.readings.add(
            url=query.url, locator=query.locator, prep_actions=query.prep_actions, read_url=reading.url
        )
        value = json.dumps(reading.value, ensure_ascii=False)
        size = len(value.encode())
        compressed = zlib.compress(value.encode(), 9) if size > MAX_PLAIN_BYTES else b""
        size = len(compressed) or size
        if size > room:
            continue
        room -= size
        if compressed:
            stored.value_json_zlib = compressed
        else:
            stored.value_json = value
    for question, exchange in evidence.exchanges.items():
        message.exchanges.add(
            kind=question.kind.value,
            reference=question.reference,
            answer=question.answer,
            prompt=exchange.prompt,
            reply=exchange.reply,
            model=exchange.model,
        )
    return message


def restore(message: pb.Evidence) -> Evidence:
    """A message as evidence; readings without a value are left out."""
    evidence = Evidence(message.final_url if message.HasField("final_url") else None)
    for stored in message.readings:
        if stored.WhichOneof("value") is not None:
            query = Query(stored.url, stored.locator, tuple(stored.prep_actions))
            evidence.readings[query] = Reading(_value(stored), stored.read_url)
    try:
        for one in message.exchanges:
            question = Question(Kind(one.kind), one.reference, one.answer)
            evidence.exchanges[question] = Exchange(one.prompt, one.reply, one.model)
    except ValueError as error:
        raise NoVerdictError("EVIDENCE_MALFORMED", f"the evidence: {error}") from error
    return evidence


def _value(stored: pb.Reading) -> object:
    try:
        if stored.WhichOneof("value") == "value_json":
            return parse(stored.value_json)
        return parse(zlib.decompressobj().decompress(stored.value_json_zlib, MAX_READ_BYTES))
    except (ValueError, RecursionError, zlib.error) as error:
        raise NoVerdictError("EVIDENCE_MALFORMED", f"a reading of the evidence: {error}") from error
