"""A policy behind an OpenAI-compatible HTTP endpoint.

Two ways, by what is known of the model. With its tokenizer at hand, prompts go to `/completions` as token ids, and
replies come back as token ids with log-probabilities where the endpoint can say them: then they are as good as an
engine's own. Without, the prompt is read back as the conversation it was made of and goes to `/chat/completions` as
text. Every reply that cannot be trusted token by token says why in `degraded`. Weights are the endpoint's own affair.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import structlog
from webagent_runtime.config import ConfigError
from webagent_runtime.errors import ServiceError
from webagent_runtime.secret_files import Token

from webagent_inference import errors
from webagent_inference.backend import Ability, Finish, Interrupted, Sample, Sampling, Sink
from webagent_inference.codec import ByteCodec, Codec
from webagent_inference.config import OpenAiConfig
from webagent_inference.fixed_weights import FixedWeights

log = structlog.get_logger()

RETRY_SECONDS = 2.0
MAX_ERROR_CHARACTERS = 400
_SEED_MASK = (1 << 31) - 1


class OpenAiBackend(FixedWeights):
    """One endpoint and one of its models."""

    def __init__(self, session: aiohttp.ClientSession, config: OpenAiConfig, model: str, codec: Codec) -> None:
        super().__init__()
        self.abilities: frozenset[Ability] = frozenset()
        self._session = session
        self._config = config
        self._model = model
        self._codec = codec

    @classmethod
    async def start(cls, config: OpenAiConfig, codec: Codec) -> "OpenAiBackend":
        """Connects, and finds out what replies carry."""
        session = aiohttp.ClientSession(
            middlewares=[_shows(Token("openai.api_key_file", config.api_key_file))] if config.api_key_file else [],
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=config.connect_seconds),
            connector=aiohttp.TCPConnector(limit=0),
        )
        try:
            model = config.model or await _first_model(session, config)
            backend = cls(session, config, model, codec)
            if not isinstance(codec, ByteCodec):
                backend.abilities = await backend._probe()
        except BaseException:
            await session.close()
            raise
        log.info(
            "endpoint_found",
            base_url=config.base_url,
            model=model,
            abilities=sorted(a.value for a in backend.abilities),
        )
        return backend

    async def generate(
        self, request_id: str, prompt: Sequence[int], sampling: Sampling, sink: Sink | None = None
    ) -> Sample:
        """See Backend."""
        try:
            sample = await self._in_flight.run(self._ask(prompt, sampling))
        except Interrupted:
            return Sample([], [], Finish.INTERRUPTED)
        if sink is not None:
            sink(sample.token_ids, sample.logprobs)
        return sample

    async def score(self, prompt: Sequence[int], token_ids: Sequence[int]) -> list[float]:
        """See Backend; it lacks SCORES."""
        raise errors.unsupported("does not score")

    async def close(self) -> None:
        """See Backend."""
        await self._session.close()

    async def _ask(self, prompt: Sequence[int], sampling: Sampling) -> Sample:
        fields: dict[str, Any] = {
            "model": self._model,
            "temperature": sampling.temperature,
            self._config.tokens_field: sampling.max_tokens,
        }
        if sampling.top_p < 1:
            fields["top_p"] = sampling.top_p
        if sampling.seed is not None:
            fields["seed"] = sampling.seed & _SEED_MASK
        if isinstance(self._codec, ByteCodec):
            path = "chat/completions"
            fields["messages"] = _messages(self._codec, prompt)
        else:
            path = "completions"
            fields |= {"prompt": list(prompt), "logprobs": 1, "return_token_ids": True, "add_special_tokens": False}
        fields = {name: value for name, value in fields.items() if name not in self._config.omit}
        answer = await self._post(path, fields | self._config.extra)
        return parse(answer, self._codec, sampling)

    async def _post(self, path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        try:
            async with self._session.post(_url(self._config, path), json=fields) as response:
                body = await response.text()
                status, advice = response.status, response.headers.get("Retry-After", "")
        except (aiohttp.ClientError, OSError) as error:
            raise errors.upstream_failed(f"{self._config.base_url}: {error}", RETRY_SECONDS) from error
        if status >= 400:
            raise _refusal(status, body, advice)
        return _json(body)

    async def _probe(self) -> frozenset[Ability]:
        """What one short reply shows; an endpoint that refuses it is a fault of the configuration."""
        prompt = list(self._codec.end_tokens[:1])
        try:
            sample = await self._ask(prompt, Sampling(temperature=1.0, max_tokens=2))
        except ServiceError as error:
            raise ConfigError(f"openai.base_url {self._config.base_url}: {error.message}") from error
        if sample.degraded:
            log.warning("endpoint_degraded", why=sample.degraded)
            return frozenset()
        return frozenset({Ability.TOKEN_IDS, Ability.LOGPROBS})


def parse(answer: Mapping[str, Any], codec: Codec, sampling: Sampling) -> Sample:
    """A reply from the endpoint's answer, with what it lacks named."""
    try:
        choice = answer["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
    except (KeyError, IndexError, TypeError) as error:
        raise errors.upstream_failed("the endpoint's answer holds no reply", RETRY_SECONDS) from error
    finish = Finish.LENGTH if choice.get("finish_reason") == "length" else Finish.STOP
    usage = answer.get("usage") or {}
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    token_ids, logprobs = _tokens(choice)
    why = _fault(token_ids, logprobs, finish, codec, sampling)
    if not why:
        return Sample(token_ids or [], logprobs or [], finish, cached)
    if token_ids is None:
        token_ids = codec.reply(text or "")
        if finish is Finish.LENGTH:
            del token_ids[-1]
    return Sample(token_ids, [], finish, cached, degraded=why)


def _fault(
    token_ids: list[int] | None, logprobs: list[float] | None, finish: Finish, codec: Codec, sampling: Sampling
) -> str:
    """Why the reply cannot be trained on; empty if it can."""
    if token_ids is None:
        return "the endpoint gives no token ids"
    if any(not 0 <= token < codec.vocab_size for token in token_ids):
        return "the endpoint gives token ids that the tokenizer does not have: model.path is another model's"
    if finish is Finish.STOP and (not token_ids or token_ids[-1] not in codec.end_tokens):
        return "the endpoint leaves out the token that ended the reply"
    if logprobs is None or len(logprobs) != len(token_ids):
        return "the endpoint gives no log-probability for each token"
    if sampling.temperature not in {0.0, 1.0} or sampling.top_p < 1:
        return "whether the endpoint's log-probabilities are from before or after temperature is not known"
    return ""


def _tokens(choice: Mapping[str, Any]) -> tuple[list[int] | None, list[float] | None]:
    """Ids and log-probabilities as vLLM and SGLang give them (beside the text), or llama.cpp (in a list of entries)."""
    given = choice.get("logprobs") or {}
    entries = given.get("content")
    if entries and all(isinstance(entry.get("id"), int) for entry in entries):
        return [entry["id"] for entry in entries], [float(entry["logprob"]) for entry in entries]
    ids, values = choice.get("token_ids"), given.get("token_logprobs")
    token_ids = [int(token) for token in ids] if isinstance(ids, list) else None
    if not isinstance(values, list) or any(value is None for value in values):
        return token_ids, None
    return token_ids, [float(value) for value in values]


def _messages(codec: ByteCodec, prompt: Sequence[int]) -> list[dict[str, str]]:
    messages, said = codec.conversation(prompt)
    if said:
        raise errors.invalid(
            "the prompt goes on after what opens the assistant's turn, which an endpoint of text cannot"
        )
    return [{"role": message.role, "content": str(message.content)} for message in messages]


def _refusal(status: int, body: str, advice: str) -> ServiceError:
    message = f"the endpoint answered {status}: {' '.join(body.split())[:MAX_ERROR_CHARACTERS]}"
    try:
        retry_after = max(0.0, float(advice))
    except ValueError:
        retry_after = RETRY_SECONDS
    if status == 429:
        return errors.upstream_busy(message, retry_after)
    if status >= 500 or status == 408:
        return errors.upstream_failed(message, retry_after)
    return errors.upstream_refused(message)


async def _first_model(session: aiohttp.ClientSession, config: OpenAiConfig) -> str:
    url = _url(config, "models")
    try:
        async with session.get(url) as response:
            body = await response.text()
    except (aiohttp.ClientError, OSError) as error:
        raise ConfigError(f"openai.base_url {config.base_url} cannot be reached: {error}") from error
    try:
        return str(json.loads(body)["data"][0]["id"])
    except (ValueError, KeyError, IndexError, TypeError):
        raise ConfigError(f"{url} lists no model; set openai.model") from None


def _url(config: OpenAiConfig, path: str) -> str:
    return f"{config.base_url.rstrip('/')}/{path}"


def _json(body: str) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError as error:
        raise errors.upstream_failed("the endpoint's answer is not JSON", RETRY_SECONDS) from error
    if not isinstance(answer, dict):
        raise errors.upstream_failed("the endpoint's answer is not an object", RETRY_SECONDS)
    return answer


def _shows(key: Token) -> aiohttp.ClientMiddlewareType:
    async def show(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        request.headers["Authorization"] = f"Bearer {key.value()}"
        return await handler(request)

    return show
