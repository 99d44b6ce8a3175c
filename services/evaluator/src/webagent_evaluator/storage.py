"""Evidence as it travels in a verdict, which travels in a trajectory and so must stay small.

All of it together has a bound. A long reading is compressed; one for which no room is left loses its value and keeps
its place. A verdict that needs such a reading cannot be reached again, and says so. An exchange for which no room is
left is dropped: a judge can be asked again.
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
"""Of one verdict's readings together, once they are decompressed."""


def store(evidence: Evidence) -> pb.Evidence:
    """Evidence as a message of at most MAX_STORED_BYTES, whose readings restore within MAX_READ_BYTES."""
    message = pb.Evidence(final_url=evidence.final_url)
    if _is_full(message):
        message.ClearField("final_url")
    values = []
    for query, reading in evidence.readings.items():
        place = message.readings.add(
            url=query.url, locator=query.locator, prep_actions=query.prep_actions, read_url=reading.url
        )
        if _is_full(message):
            del message.readings[-1]
        else:
            values.append((place, json.dumps(reading.value, ensure_ascii=False).encode()))
    left = MAX_READ_BYTES
    for place, value in values:
        if len(value) <= left:
            _set_value(place, value)
        if _is_full(message):
            place.ClearField("value")
        elif place.WhichOneof("value") is not None:
            left -= len(value)
    for question, exchange in evidence.exchanges.items():
        message.exchanges.add(
            kind=question.kind.value,
            reference=question.reference,
            answer=question.answer,
            prompt=exchange.prompt,
            reply=exchange.reply,
            model=exchange.model,
        )
        if _is_full(message):
            del message.exchanges[-1]
    return message


def _set_value(place: pb.Reading, value: bytes) -> None:
    if len(value) > MAX_PLAIN_BYTES:
        place.value_json_zlib = zlib.compress(value, 9)
    else:
        place.value_json = value.decode()


def _is_full(message: pb.Evidence) -> bool:
    return message.ByteSize() > MAX_STORED_BYTES


def restore(message: pb.Evidence) -> Evidence:
    """A message as evidence; readings without a value are left out."""
    evidence = Evidence(message.final_url if message.HasField("final_url") else None)
    left = MAX_READ_BYTES
    try:
        for stored in message.readings:
            if stored.WhichOneof("value") is not None:
                value = _value_of(stored, left)
                left -= len(value)
                query = Query(stored.url, stored.locator, tuple(stored.prep_actions))
                evidence.readings[query] = Reading(parse(value), stored.read_url)
        for one in message.exchanges:
            question = Question(Kind(one.kind), one.reference, one.answer)
            evidence.exchanges[question] = Exchange(one.prompt, one.reply, one.model)
    except (ValueError, RecursionError, zlib.error) as error:
        raise NoVerdictError("EVIDENCE_MALFORMED", f"the evidence: {error}") from error
    return evidence


def _value_of(stored: pb.Reading, most: int) -> bytes:
    if stored.WhichOneof("value") == "value_json":
        value = stored.value_json.encode()
    else:
        value = zlib.decompressobj().decompress(stored.value_json_zlib, most + 1)
    if len(value) > most:
        raise ValueError(f"its readings are longer than {MAX_READ_BYTES} bytes")
    return value
