"""The policy on plain transformers, for machines where vLLM does not install.

One thread owns the model and does one thing at a time, in the order asked: a batch of replies, a score, new weights.
Requests that wait are taken as one batch, up to max_sequences; rows that end leave it at once, and those that arrive
meanwhile wait for the next. There is no prefix cache.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
import structlog
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from webagent_inference.backend import FULL, Finish, Interrupted, Sample, Sampling, Sink
from webagent_inference.config import EngineConfig
from webagent_inference.precision import compute_dtype

log = structlog.get_logger()

T = TypeVar("T")


@dataclass(eq=False)
class _Row:
    """One reply in the making."""

    prompt: list[int]
    sampling: Sampling
    done: "asyncio.Future[Sample]"
    loop: asyncio.AbstractEventLoop
    generator: torch.Generator
    sink: Sink | None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    dropped: bool = False

    def extend(self, token: int, logprob: float) -> None:
        self.token_ids.append(token)
        self.logprobs.append(logprob)
        if self.sink is not None:
            self.loop.call_soon_threadsafe(self.sink, [token], [logprob])

    def finish(self, why: Finish) -> None:
        sample = Sample(self.token_ids, self.logprobs, why)
        self.loop.call_soon_threadsafe(_set_result, self.done, sample)

    def fail(self, error: BaseException) -> None:
        self.loop.call_soon_threadsafe(_set_exception, self.done, error)


_Work = _Row | Callable[[], None] | None


def _nothing() -> None:
    """Work that is none."""


class TransformersBackend:
    """A model and the thread that runs it."""

    abilities = FULL

    def __init__(self, model: Any, config: EngineConfig, end_tokens: Sequence[int]) -> None:
        self._model = model
        self._end_tokens = frozenset(end_tokens)
        self._max_sequences = config.max_sequences
        self._work: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        self._interrupting = threading.Event()
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._died: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._thread = threading.Thread(target=self._serve, args=(asyncio.get_running_loop(),), name="policy")
        self._thread.start()

    @classmethod
    async def start(cls, directory: Path, config: EngineConfig, end_tokens: Sequence[int]) -> "TransformersBackend":
        """Loads the model."""

        def load() -> Any:
            torch.set_num_threads(config.thread_count)
            model = AutoModelForCausalLM.from_pretrained(str(directory), dtype=getattr(torch, compute_dtype(config)))
            return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()

        return cls(await asyncio.to_thread(load), config, end_tokens)

    async def generate(
        self, request_id: str, prompt: Sequence[int], sampling: Sampling, sink: Sink | None = None
    ) -> Sample:
        """See Backend."""
        loop = asyncio.get_running_loop()
        generator = torch.Generator()
        if sampling.seed is None:
            generator.seed()
        else:
            generator.manual_seed(sampling.seed)
        row = _Row(list(prompt), sampling, loop.create_future(), loop, generator, sink)
        self._enter()
        try:
            self._work.put(row)
            return await row.done
        finally:
            row.dropped = True
            self._leave()

    async def score(self, prompt: Sequence[int], token_ids: Sequence[int]) -> list[float]:
        """See Backend."""
        self._enter()
        try:
            return await self._in_thread(lambda: self._score(list(prompt), list(token_ids)))
        finally:
            self._leave()

    async def interrupt(self) -> None:
        """See Backend."""
        self._interrupting.set()
        try:
            await self._idle.wait()
        finally:
            self._interrupting.clear()

    async def load(self, directory: Path) -> None:
        """See Backend."""
        await self._in_thread(lambda: self._load(directory))

    async def reset_cache(self) -> bool:
        """See Backend."""
        return True

    async def died(self) -> str:
        """See Backend."""
        return await asyncio.shield(self._died)

    async def close(self) -> None:
        """See Backend."""
        self._interrupting.set()
        self._work.put(None)
        await asyncio.to_thread(self._thread.join)

    def _enter(self) -> None:
        self._in_flight += 1
        self._idle.clear()

    def _leave(self) -> None:
        self._in_flight -= 1
        if not self._in_flight:
            self._idle.set()

    async def _in_thread(self, call: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 - carried to the caller, whose traceback shows it
                loop.call_soon_threadsafe(_set_exception, done, error)
            else:
                loop.call_soon_threadsafe(_set_result, done, result)

        self._work.put(run)
        return await done

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """The thread: takes what waits until told to end."""
        item = self._work.get()
        while item is not None:
            if not isinstance(item, _Row):
                item()
                item = self._work.get()
                continue
            rows, item = self._batch(item)
            try:
                with torch.inference_mode():
                    self._sample(rows)
            except Exception as error:
                log.exception("batch_failed")
                for row in rows:
                    row.fail(error)
                if isinstance(error, torch.AcceleratorError):
                    loop.call_soon_threadsafe(_set_result, self._died, str(error))

    def _batch(self, first: _Row) -> tuple[list[_Row], _Work]:
        """The rows that wait behind the first one, and the work that comes after them."""
        rows = [first]
        while len(rows) < self._max_sequences:
            try:
                waiting = self._work.get_nowait()
            except queue.Empty:
                break
            if not isinstance(waiting, _Row):
                return rows, waiting
            rows.append(waiting)
        return rows, _nothing

    def _sample(self, rows: list[_Row]) -> None:
        """Decodes a batch, left-padded, to the end of its last row."""
        device = self._model.device
        width = max(len(row.prompt) for row in rows)
        ids = torch.tensor([[0] * (width - len(row.prompt)) + row.prompt for row in rows], device=device)
        mask = torch.tensor([[0] * (width - len(row.prompt)) + [1] * len(row.prompt) for row in rows], device=device)
        cache = DynamicCache(config=self._model.config)
        while True:
            positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
            logits = (
                self._model(
                    input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
                )
                .logits[:, -1]
                .float()
            )
            keep = [index for index, row in enumerate(rows) if self._extend(row, logits[index])]
            if not keep:
                return
            if len(keep) < len(rows):
                rows = [rows[index] for index in keep]
                kept = torch.tensor(keep, device=device)
                cache.batch_select_indices(kept)
                mask = mask[kept]
            ids = torch.tensor([[row.token_ids[-1]] for row in rows], device=device)
            mask = torch.cat([mask, torch.ones_like(ids)], dim=1)

    def _extend(self, row: _Row, logits: torch.Tensor) -> bool:
        """Draws the row's next token; False when the row has ended."""
        if row.dropped:
            return False
        if self._interrupting.is_set():
            row.finish(Finish.INTERRUPTED)
            return False
        token, logprob = draw(logits.cpu(), row.sampling, row.generator)
        row.extend(token, logprob)
        if token in self._end_tokens:
            row.finish(Finish.STOP)
            return False
        if len(row.token_ids) >= row.sampling.max_tokens:
            row.finish(Finish.LENGTH)
            return False
        return True

    def _score(self, prompt: list[int], token_ids: list[int]) -> list[float]:
        if self._interrupting.is_set():
            raise Interrupted
        with torch.inference_mode():
            ids = torch.tensor([prompt + token_ids], device=self._model.device)
            logits = self._model(input_ids=ids, logits_to_keep=len(token_ids) + 1).logits[0, :-1].float()
            logprobs = logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])
        scores: list[float] = logprobs[:, 0].tolist()
        return scores

    def _load(self, directory: Path) -> None:
        tensors: dict[str, torch.Tensor] = {}
        for path in sorted(directory.glob("*.safetensors")):
            tensors.update(safetensors.torch.load_file(path))
        # Tied weights are one parameter of several names, of which a file has one.
        names = self._model.state_dict(keep_vars=True)
        given = {id(names[name]): tensor for name, tensor in tensors.items() if name in names}
        tied = {name: given[id(weight)] for name, weight in names.items() if id(weight) in given}
        self._model.load_state_dict(tied | tensors)


def draw(logits: torch.Tensor, sampling: Sampling, generator: torch.Generator) -> tuple[int, float]:
    """A token from logits [vocab] and its log-probability under the distribution that it was drawn from."""
    if sampling.temperature == 0:
        token = int(logits.argmax())
        return token, float(logits.log_softmax(-1)[token])
    logprobs = (logits / sampling.temperature).log_softmax(-1)
    if sampling.top_p < 1:
        ordered, order = logprobs.sort(descending=True)
        outside = ordered.exp().cumsum(-1) - ordered.exp() >= sampling.top_p
        logprobs = logprobs.index_fill(0, order[outside], -torch.inf).log_softmax(-1)
    token = int(torch.multinomial(logprobs.exp(), 1, generator=generator))
    return token, float(logprobs[token])


def _set_result(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: "asyncio.Future[T]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
