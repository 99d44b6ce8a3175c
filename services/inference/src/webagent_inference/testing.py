"""A model small enough for tests of everything around it: a table of bigrams over bytes, read from safetensors.

Its weights really change and really matter, an update takes milliseconds, and what it must answer is plain to see.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
from google.protobuf import json_format
from safetensors.numpy import save
from webagent.trajectory.v1 import policy_pb2

from webagent_inference import modeldir
from webagent_inference.backend import FULL, EngineDeadError, Finish, Interrupted, Sample, Sampling, Sink
from webagent_inference.codec import BYTE_VOCABULARY, END, ByteCodec, ChatMessage
from webagent_inference.in_flight import InFlight

Table = np.ndarray[Any, np.dtype[np.float32]]

FILE = "model.safetensors"
PROMPT = ByteCodec("bigrams").prompt([ChatMessage("user", "Tell me.")])


def table(seed: int) -> Table:
    """The logits of one version: row by last token. Replies under it do not end by themselves."""
    logits = np.random.default_rng(seed).normal(0, 3, (BYTE_VOCABULARY, BYTE_VOCABULARY)).astype(np.float32)
    logits[:, END:] = -60.0
    return logits


def log_softmax(logits: Table) -> Table:
    """Log-probabilities of one row."""
    shifted = logits - logits.max()
    logprobs: Table = shifted - np.log(np.exp(shifted).sum())
    return logprobs


def weights(seed: int) -> bytes:
    """The file of one version."""
    content: bytes = save({"table.weight": table(seed)})
    return content


class Bigrams:
    """A backend of one table."""

    abilities = FULL

    def __init__(self, directory: Path) -> None:
        self._logits = self._read(directory)
        self._in_flight = InFlight()
        self._cache: set[tuple[int, ...]] = set()
        self._death: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @staticmethod
    def _read(directory: Path) -> Table:
        (span,) = modeldir.tensor_spans(directory / FILE)
        content = (directory / FILE).read_bytes()[span.start : span.end]
        return np.frombuffer(content, np.float32).reshape(span.shape)

    def die(self) -> None:
        """The engine crashes."""
        self._death.set_result("the table caught fire")

    async def generate(
        self, request_id: str, prompt: Sequence[int], sampling: Sampling, sink: Sink | None = None
    ) -> Sample:
        """See Backend. A token takes a millisecond."""
        dice = np.random.default_rng(sampling.seed)
        cached = len(prompt) if tuple(prompt) in self._cache else 0
        self._cache.add(tuple(prompt))
        ids: list[int] = []
        logprobs: list[float] = []
        for _ in range(sampling.max_tokens):
            try:
                await self._in_flight.run(asyncio.sleep(0.001))
            except Interrupted:
                return Sample(ids, logprobs, Finish.INTERRUPTED, cached)
            if self._death.done():
                raise EngineDeadError(self._death.result())
            row = log_softmax(self._logits[[*prompt, *ids][-1]] / (sampling.temperature or 1.0))
            token = int(row.argmax() if sampling.temperature == 0 else dice.choice(len(row), p=np.exp(row)))
            ids.append(token)
            logprobs.append(float(row[token]))
            if sink is not None:
                sink([token], logprobs[-1:])
        return Sample(ids, logprobs, Finish.LENGTH, cached)

    async def score(self, prompt: Sequence[int], token_ids: Sequence[int]) -> list[float]:
        """See Backend."""
        before = [prompt[-1], *token_ids]
        return [float(log_softmax(self._logits[last])[token]) for last, token in zip(before, token_ids, strict=False)]

    async def interrupt(self) -> None:
        """See Backend."""
        await self._in_flight.interrupt()

    async def load(self, directory: Path) -> None:
        """See Backend."""
        self._logits = self._read(directory)

    async def reset_cache(self) -> bool:
        """See Backend."""
        self._cache.clear()
        return True

    async def died(self) -> str:
        """See Backend."""
        return await asyncio.shield(self._death)

    async def close(self) -> None:
        """See Backend."""


class Publisher:
    """Writes policy versions; the weights of version n are those of seed n."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def publish(self, number: int, *, memory: bool = False) -> policy_pb2.PolicyVersion:
        """A version with a canary, as the trainer makes it; with `memory`, under a URI that is not a local file's."""
        directory = self._directory / str(number)
        directory.mkdir(parents=True, exist_ok=True)
        logits = table(number)
        (directory / FILE).write_bytes(weights(number))
        (span,) = modeldir.tensor_spans(directory / FILE)
        content = (directory / FILE).read_bytes()[span.start : span.end]
        ids: list[int] = []
        for _ in range(4):
            ids.append(int(logits[[*PROMPT, *ids][-1]].argmax()))
        before = [PROMPT[-1], *ids]
        scores = [float(log_softmax(logits[last])[token]) for last, token in zip(before, ids, strict=False)]
        entry = policy_pb2.TensorEntry(
            name="table.weight", file=FILE, dtype="F32", shape=span.shape, sha256=hashlib.sha256(content).hexdigest()
        )
        canary = policy_pb2.Canary(prompt_token_ids=PROMPT, token_ids=ids, logprobs=scores, tolerance=1e-3)
        manifest = policy_pb2.PolicyManifest(version=number, tensors=[entry], canaries=[canary])
        text = json_format.MessageToJson(manifest).encode()
        (directory / "manifest.json").write_bytes(text)
        uri = str(directory)
        if memory:
            uri = f"memory://{directory}"
            for path in directory.iterdir():
                fsspec.filesystem("memory").pipe_file(f"{directory}/{path.name}", path.read_bytes())
        return policy_pb2.PolicyVersion(version=number, uri=uri, manifest_digest=hashlib.sha256(text).hexdigest())

    def greedy(self, number: int, count: int) -> list[int]:
        """What the version says to PROMPT at temperature 0."""
        ids: list[int] = []
        for _ in range(count):
            ids.append(int(table(number)[[*PROMPT, *ids][-1]].argmax()))
        return ids
