"""Parts to test rollout against: services as processes, and a scripted policy that speaks inference's contract.

The scripted policy's tokens are the bytes of the text, so a prompt can be read back from its ids.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc
from webagent.env.v1 import env_pb2, env_pb2_grpc
from webagent.inference.v1 import inference_pb2, inference_pb2_grpc
from webagent.trajectory.v1.trajectory_pb2 import AgentSettings, EpisodeSpec, RolloutRequest, SampledPolicy
from webagent_runtime.client import open_channel
from webagent_runtime.errors import ServiceError
from webagent_runtime.testing import free_port

START_SECONDS = 60.0
STOP_SECONDS = 30.0
END = 256
MODEL = inference_pb2.ModelIdentity(model_id="scripted", tokenizer_hash="bytes", template_hash="brackets")


class Process:
    """A service in a process of its own, by its console module."""

    def __init__(self, module: str, service: str, *options: str) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._service = service
        command = [sys.executable, "-m", module, "--set", f"server.port={self.port}"]
        self._command = command + [part for option in options for part in ("--set", option)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once the service is ready."""
        self._process = subprocess.Popen(self._command, start_new_session=True)  # noqa: S603
        end = time.monotonic() + START_SECONDS
        with grpc.insecure_channel(self.address) as channel:
            grpc.channel_ready_future(channel).result(START_SECONDS)
            health = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest(service=self._service)
            for status in health.Watch(request, timeout=end - time.monotonic()):
                if status.status == health_pb2.HealthCheckResponse.SERVING:
                    return

    def kill(self) -> None:
        """Ends the service and all that it started as a crash would."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def stop(self) -> None:
        """Ends the service in order."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()


def env_process(directory: Path, *settings: str) -> Process:
    """The env service, not yet started. Its directory must be its own: it cleans up there after a predecessor."""
    options = (f"state_directory={directory}", "server.drain_seconds=2", "sessions.capacity=32")
    return Process("webagent_env", "webagent.env.v1.EnvironmentService", *options, *settings)


def evaluator_process() -> Process:
    """The evaluator service, not yet started."""
    return Process("webagent_evaluator", "webagent.evaluator.v1.EvaluatorService", "server.drain_seconds=2")


class ScriptedPolicy(inference_pb2_grpc.InferenceServiceServicer):
    """Answers each prompt by `script(prompt text)`, after the faults that were put before it."""

    def __init__(self) -> None:
        self.script: Callable[[str], str] = lambda prompt: ""
        self.faults: deque[ServiceError] = deque()
        self.before_reply: Callable[[], Awaitable[Any]] | None = None
        self.prompts: list[str] = []
        self.requests: list[inference_pb2.GenerateRequest] = []
        self.max_prompt_tokens = 1_000_000
        self.address = ""

    async def Render(  # noqa: N802
        self, request: inference_pb2.RenderRequest, context: Any
    ) -> inference_pb2.RenderResponse:
        """Writes the conversation as bytes."""
        names = {inference_pb2.ROLE_SYSTEM: "system", inference_pb2.ROLE_USER: "user"}
        text = "".join(
            f"[{names.get(m.role, 'assistant')}]{m.text or bytes(i for i in m.token_ids.ids if i != END).decode()}\n"
            for m in request.messages
        )
        reply = [*request.reply_text.encode(), END] if request.HasField("reply_text") else []
        return inference_pb2.RenderResponse(prompt_token_ids=text.encode(), reply_token_ids=reply, model=MODEL)

    async def Generate(  # noqa: N802
        self, request: inference_pb2.GenerateRequest, context: Any
    ) -> inference_pb2.GenerateResponse:
        """Follows the script."""
        if self.faults:
            raise self.faults.popleft()
        if len(request.prompt_token_ids) > self.max_prompt_tokens:
            raise ServiceError(grpc.StatusCode.INVALID_ARGUMENT, "PROMPT_TOO_LONG", "does not fit")
        prompt = bytes(request.prompt_token_ids).decode()
        self.prompts.append(prompt)
        self.requests.append(request)
        if self.before_reply is not None:
            await self.before_reply()
        text = self.script(prompt)
        ids = [*text.encode(), END]
        return inference_pb2.GenerateResponse(
            token_ids=ids,
            logprobs=[-0.5] * len(ids),
            logprob_kind=inference_pb2.LOGPROB_KIND_RAW,
            spans=[inference_pb2.WeightsSpan(start=0, end=len(ids), weights_version=3)],
            finish_reason=inference_pb2.FINISH_REASON_STOP,
            text=text,
            sampling=request.sampling,
            model=MODEL,
        )


def episode(episode_id: str, task: str = "click-test", *, expert: bool = False, **agent: Any) -> EpisodeSpec:
    """An episode of a MiniWoB task."""
    settings = {"prompt": "compact", "max_turns": 4, "compress_context": True, **agent}
    spec = EpisodeSpec(
        episode_id=episode_id,
        task=env_pb2.TaskRef(suite="miniwob", task_id=task),
        seed=7,
        agent=AgentSettings(**settings),
    )
    if expert:
        spec.expert.SetInParent()
    else:
        spec.sampled.CopyFrom(
            SampledPolicy(sampling=inference_pb2.SamplingSettings(temperature=1.0, max_tokens=64, seed=1))
        )
    return spec


def request(spec: EpisodeSpec, *, seconds: float = 60.0) -> RolloutRequest:
    """The episode as a request of the queue."""
    deadline = Timestamp()
    deadline.FromNanoseconds(round((time.time() + seconds) * 1e9))
    return RolloutRequest(run_id="run", group_id="group", episode=spec, deadline=deadline)


async def live_sessions(address: str, episode_id: str) -> list[str]:
    """The sessions of one episode that env holds now."""
    async with open_channel(address) as channel:
        stub = env_pb2_grpc.EnvironmentServiceStub(channel)
        listed = await stub.ListSessions(env_pb2.ListSessionsRequest(), timeout=10)
    return [s.session_id for s in listed.sessions if s.session_id.startswith(f"{episode_id}.")]


@contextmanager
def endpoint(*answers: bytes) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A chat endpoint that gives these answers in turn (an empty one: 503); its address, and what it was asked."""
    seen: list[dict[str, Any]] = []
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            answer = left.pop(0)
            self.send_response(200 if answer else 503)
            self.end_headers()
            self.wfile.write(answer)

        def log_request(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", seen
    finally:
        server.shutdown()
        server.server_close()
