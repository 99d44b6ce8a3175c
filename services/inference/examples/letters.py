"""A policy of one's own, sixty lines and their imports: letters at random, served on port 50052."""
# ruff: noqa: D101, D102, D103, N802, S311 - the contract describes the methods and names them; dice are no secret

import asyncio
import math
import random

import grpc
from webagent.inference.v1 import inference_pb2 as pb
from webagent.inference.v1 import inference_pb2_grpc as rpc
from webagent_runtime.config import ServerConfig
from webagent_runtime.errors import ServiceError
from webagent_runtime.server import Server

END, OPEN, VOCABULARY, CONTEXT = 256, 257, 258, 65536
LETTERS = [*b"abcdefghijklmnopqrstuvwxyz ", END]
MODEL = pb.ModelIdentity(model_id="letters", tokenizer_hash="bytes", template_hash="open, text, end")
CAN = [pb.CAPABILITY_TOKEN_IDS, pb.CAPABILITY_LOGPROBS, pb.CAPABILITY_SCORE, pb.CAPABILITY_REPEATABLE]


def require(condition, reason, code=grpc.StatusCode.INVALID_ARGUMENT, retry=None):
    if not condition:
        raise ServiceError(code, reason, "see the contract", retry_after=retry)


def check(prompt, version):
    require(prompt, "INVALID_REQUEST")
    require(len(prompt) < CONTEXT, "PROMPT_TOO_LONG")
    require(max(prompt) < VOCABULARY, "UNKNOWN_TOKEN")
    require(version == 0, "VERSION_NOT_READY", grpc.StatusCode.UNAVAILABLE, 1.0)


class Letters(rpc.InferenceServiceServicer):
    async def Render(self, request, context):
        prompt = []
        require(request.messages and request.messages[-1].role == pb.ROLE_USER, "INVALID_REQUEST")
        for message in request.messages:
            ids = list(message.token_ids.ids) or list(message.text.encode())
            require(all(token < VOCABULARY for token in ids), "UNKNOWN_TOKEN")
            prompt += [OPEN, *ids] if ids[-1:] == [END] else [OPEN, *ids, END]
        reply = [*request.reply_text.encode(), END] if request.HasField("reply_text") else []
        return pb.RenderResponse(prompt_token_ids=[*prompt, OPEN], reply_token_ids=reply, model=MODEL)

    async def Generate(self, request, context):
        used, ids, text = request.sampling, [], ""
        check(request.prompt_token_ids, request.min_weights_version)
        require(request.request_id, "INVALID_REQUEST")
        require(used.temperature == 0 or 0.01 <= used.temperature < math.inf, "UNSUPPORTED_SAMPLING")
        require(0 <= used.top_p <= 1 and used.max_tokens and all(used.stop), "UNSUPPORTED_SAMPLING")
        dice = random.Random(used.seed if used.HasField("seed") else None if used.temperature else 0)
        while len(ids) < used.max_tokens and END not in ids and not any(stop in text for stop in used.stop):
            ids.append(dice.choice(LETTERS))
            text = bytes(token for token in ids if token < END).decode()
        why = pb.FINISH_REASON_STOP
        if END not in ids and not any(stop in text for stop in used.stop):
            why = pb.FINISH_REASON_LENGTH
        text = min((text[: text.index(stop)] for stop in used.stop if stop in text), default=text, key=len)
        scores = [-math.log(len(LETTERS))] * len(ids)
        spans = [pb.WeightsSpan(start=0, end=len(ids))]
        return pb.GenerateResponse(token_ids=ids, logprobs=scores, logprob_kind=pb.LOGPROB_KIND_PROCESSED, spans=spans,
                                   finish_reason=why, text=text, sampling=used, model=MODEL)  # fmt: skip

    async def Score(self, request, context):
        check([*request.prompt_token_ids, *request.token_ids], request.min_weights_version)
        scores = [-math.log(len(LETTERS)) if token in LETTERS else -100.0 for token in request.token_ids]
        return pb.ScoreResponse(logprobs=scores, model=MODEL)

    async def GetModelInfo(self, request, context):
        return pb.GetModelInfoResponse(model=MODEL, backend="letters", max_context=CONTEXT, vocab_size=VOCABULARY,
                                       end_token_ids=[END], replica="letters", capabilities=CAN)  # fmt: skip


async def served(port):
    server = Server(ServerConfig(port=port), name="letters", version="1")
    add = rpc.add_InferenceServiceServicer_to_server
    server.add(add, Letters(), service="webagent.inference.v1.InferenceService", scope="inference")
    await server.start()
    server.set_ready(True)
    return server


async def main():
    await (await served(50052)).run(drain=lambda: asyncio.sleep(0))


if __name__ == "__main__":
    asyncio.run(main())
