"""The HTTP server: models, chat completions, whole or streamed.

Requests go the way that gRPC's take: the same codec, policy, queue and bounds. A client that hangs up ends its request.
"""

import asyncio
import json
import secrets
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import structlog
from aiohttp import web
from webagent_runtime.config import ConfigError, TlsConfig
from webagent_runtime.errors import ServiceError
from webagent_runtime.secret_files import Watched
from webagent_runtime.tokens import Tokens

from webagent_inference import errors
from webagent_inference.config import FaceConfig, LimitsConfig
from webagent_inference.core import Core, Slot
from webagent_inference.face.text import TextStream
from webagent_inference.face.wire import Answer, ChatRequest, logprobs, refusal, spans
from webagent_inference.policy import Reply
from webagent_inference.watch import Stops

log = structlog.get_logger()

SCOPE = "inference"
CLOSE_SECONDS = 2.0


@asynccontextmanager
async def listening(config: FaceConfig, slot: Slot, limits: LimitsConfig) -> AsyncIterator[str]:
    """Serves while the block runs; its base URL."""
    face = _Face(config, slot, limits)
    application = web.Application(client_max_size=config.max_body_bytes, middlewares=[face.guard])
    application.router.add_get("/health", face.health)
    application.router.add_get("/v1/models", face.models)
    application.router.add_get("/v1/models/{model:.+}", face.model)
    application.router.add_post("/v1/chat/completions", face.complete)
    runner = web.AppRunner(
        application, access_log=None, handler_cancellation=True, handle_signals=False, shutdown_timeout=CLOSE_SECONDS
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, config.host, config.port, ssl_context=_tls(config.tls), reuse_port=False)
        try:
            await site.start()
        except OSError as error:
            message = f"face.port {config.port} on {config.host} cannot be bound: {error.strerror}"
            raise ConfigError(message) from None
        host, port = runner.addresses[0][:2]
        url = f"{'http' if config.tls is None else 'https'}://{host}:{port}/v1"
        log.info("face_started", url=url)
        yield url
    finally:
        await runner.cleanup()


class _Face:
    """The handlers."""

    def __init__(self, config: FaceConfig, slot: Slot, limits: LimitsConfig) -> None:
        self._slot = slot
        self._limits = limits
        self._tokens = Tokens(config.tokens_file) if config.tokens_file is not None else None

    @web.middleware
    async def guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Checks the token; errors in the form that OpenAI's clients know."""
        try:
            if self._tokens is not None and request.path != "/health":
                self._tokens.check([("authorization", request.headers.get("Authorization", ""))], SCOPE)
            answer: web.StreamResponse = await handler(request)
        except ServiceError as error:
            status, body, headers = refusal(error)
            return web.json_response(body, status=status, headers=headers)
        except web.HTTPException as error:
            body = {"error": {"message": error.reason, "type": "invalid_request_error", "param": None, "code": None}}
            return web.json_response(body, status=error.status)
        return answer

    async def health(self, request: web.Request) -> web.Response:
        """Whether the model is there."""
        return web.json_response({"version": self._slot.core.policy.version.number})

    async def models(self, request: web.Request) -> web.Response:
        """The one model."""
        return web.json_response({"object": "list", "data": [self._model()]})

    async def model(self, request: web.Request) -> web.Response:
        """The one model, by its name."""
        self._check_model(request.match_info["model"])
        return web.json_response(self._model())

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """One reply."""
        asked = ChatRequest.read(await request.read())
        self._check_model(asked.model)
        core = self._slot.core
        prompt = await asyncio.to_thread(core.chat.prompt, asked.conversation())
        completion = _Completion(core, asked, prompt)
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                if asked.stream:
                    return await completion.stream(request)
                return web.json_response(await completion.whole())
        except TimeoutError:
            raise errors.deadline_exceeded(self._limits.request_seconds) from None

    def _model(self) -> dict[str, Any]:
        core = self._slot.core
        return {
            "id": core.chat.identity.model_id,
            "object": "model",
            "created": 0,
            "owned_by": "webagent",
            "max_model_len": core.policy.max_context,
            "weights_version": core.policy.version.number,
        }

    def _check_model(self, name: str) -> None:
        served = self._slot.core.chat.identity.model_id
        if name != served:
            raise errors.model_not_found(name, served)


class _Completion:
    """One request on its way."""

    def __init__(self, core: Core, asked: ChatRequest, prompt: Sequence[int]) -> None:
        version = core.policy.version
        self._core = core
        self._asked = asked
        self._prompt = prompt
        self._sampling = asked.sampling(core.policy.max_context - len(prompt))
        self._stops = Stops(self._sampling.stop, core.chat.text) if any(self._sampling.stop) else None
        self._id = secrets.token_hex(12)
        self._answer = Answer(asked, self._id, f"v{version.number}-{version.digest[:8] or 'base'}")
        # Tokens as they come; None ends them.
        self._tokens: asyncio.Queue[tuple[int, float | None] | None] = asyncio.Queue()

    async def whole(self) -> dict[str, Any]:
        reply = await self._generate(None)
        text = self._core.chat.text(reply.token_ids)
        if self._stops is not None:
            text = self._stops.cut(text)
        pieces = [self._core.chat.text([token]) for token in reply.token_ids] if self._asked.logprobs else []
        return self._answer.whole(reply, text, pieces, self._prompt)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        generating = asyncio.create_task(self._generate(self._hear))
        generating.add_done_callback(lambda _: self._tokens.put_nowait(None))
        try:
            first = await self._tokens.get()
            if first is None and (error := generating.exception()) is not None:
                # Nothing was sent yet, so it can still be refused as usual.
                raise error
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
            await response.prepare(request)
            await self._send_all(response, first, generating)
            await response.write(b"data: [DONE]\n\n")
            await response.write_eof()
        finally:
            generating.cancel()
            await asyncio.wait({generating})
        return response

    async def _send_all(
        self, response: web.StreamResponse, item: tuple[int, float | None] | None, generating: "asyncio.Task[Reply]"
    ) -> None:
        text = TextStream(self._core.chat.text, self._sampling.stop)
        await _send(response, self._answer.chunk({"role": "assistant", "content": ""}))
        while item is not None:
            token, logprob = item
            more: dict[str, Any] = {"token_ids": [token]} if self._asked.return_token_ids else {}
            if self._asked.logprobs and logprob is not None:
                more["logprobs"] = logprobs([self._core.chat.text([token])], [logprob])
            if (piece := text.add(token)) or more:
                await _send(response, self._answer.chunk({"content": piece}, **more))
            item = await self._tokens.get()
        try:
            reply = generating.result()
        except ServiceError as error:
            await _send(response, refusal(error)[1])
            return
        if rest := text.end():
            await _send(response, self._answer.chunk({"content": rest}))
        await _send(response, self._answer.chunk({}, reply.finish, weights_spans=spans(reply)))
        if self._asked.stream_options is not None and self._asked.stream_options.include_usage:
            await _send(response, self._answer.last(self._prompt, reply))

    def _hear(self, token_ids: Sequence[int], values: Sequence[float]) -> None:
        for index, token in enumerate(token_ids):
            self._tokens.put_nowait((token, values[index] if index < len(values) else None))

    async def _generate(self, sink: Any) -> Reply:
        ended = self._stops.ended if self._stops is not None else None
        return await self._core.policy.generate(
            f"http-{self._id}", self._prompt, self._sampling, ended=ended, sink=sink
        )


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode())


def _tls(config: TlsConfig | None) -> ssl.SSLContext | None:
    """Looks before each handshake whether the certificate was renewed."""
    if config is None:
        return None
    current = context = _context(config)
    watched = Watched([config.cert_file, config.key_file, config.client_ca_file])

    def renew(connection: ssl.SSLObject, _name: str | None, _context_of_listener: ssl.SSLContext) -> None:
        nonlocal current
        if watched.changed():
            try:
                current = _context(config)
            except OSError as error:
                log.warning("certificate_not_renewed", error=str(error))
        connection.context = current

    context.sni_callback = renew
    return context


def _context(config: TlsConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(config.cert_file, config.key_file)
    if config.client_ca_file is not None:
        context.load_verify_locations(config.client_ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
