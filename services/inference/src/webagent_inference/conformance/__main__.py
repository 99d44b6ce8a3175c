"""`webagent-inference-conformance --target HOST:PORT`: holds a running service to the contract.

Exit code 0 when every promise is kept or is one that the service says it cannot keep, 1 when one is broken, 2 when
there is no service to ask. It only samples: weights are not changed.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc.aio
from webagent.inference.v1 import inference_pb2 as pb
from webagent.inference.v1 import inference_pb2_grpc
from webagent_runtime.client import open_channel
from webagent_runtime.config import ClientConfig, ConfigError
from webagent_runtime.errors import ServiceError, from_rpc

from webagent_inference.conformance.promises import PROMISES, Promise
from webagent_inference.conformance.subject import BrokenError, CannotError, Subject


async def examine(target: str, admin: str | None, client: ClientConfig, seconds: float) -> list[tuple[str, str, str]]:
    """Each promise with "kept", "cannot" or "BROKEN" and why; ServiceError when the service does not answer."""
    channel = open_channel(target, client)
    admin_channel = open_channel(admin, client) if admin is not None else None
    try:
        policy: inference_pb2_grpc.InferenceServiceAsyncStub = inference_pb2_grpc.InferenceServiceStub(channel)
        try:
            info = await policy.GetModelInfo(pb.GetModelInfoRequest(), timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error
        stub = inference_pb2_grpc.InferenceAdminServiceStub(admin_channel) if admin_channel is not None else None
        subject = Subject(policy, stub, channel, info, seconds)
        return [(each.text, *await _hold(each, subject)) for each in PROMISES]
    finally:
        await channel.close()
        if admin_channel is not None:
            await admin_channel.close()


async def _hold(promise: Promise, subject: Subject) -> tuple[str, str]:
    lacking = [pb.Capability.Name(each) for each in promise.needs if each not in subject.info.capabilities]
    if lacking:
        return "cannot", f"lacks {', '.join(lacking)}"
    try:
        await promise.check(subject)
    except CannotError as error:
        return "cannot", str(error)
    except (BrokenError, ServiceError) as error:
        return "BROKEN", str(error)
    except Exception as error:  # noqa: BLE001 - an answer that nobody thought of breaks its promise, not the program
        return "BROKEN", f"an answer could not be read: {type(error).__name__}: {error}"
    return "kept", ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Console entry."""
    parser = argparse.ArgumentParser(prog="webagent-inference-conformance", description=__doc__)
    parser.add_argument("--target", required=True, metavar="HOST:PORT", help="the service's policy face")
    parser.add_argument("--admin", metavar="HOST:PORT", help="its administration, if that is to be examined too")
    parser.add_argument("--token-file", type=Path, help="file with a bearer token")
    parser.add_argument("--seconds", type=float, default=60.0, help="bound on one call")
    options = parser.parse_args(arguments)
    client = ClientConfig(token_file=options.token_file)
    try:
        results = asyncio.run(examine(options.target, options.admin, client, options.seconds))
    except (ServiceError, ConfigError) as error:
        sys.stderr.write(f"{options.target}: {error}\n")
        sys.exit(2)
    for text, verdict, why in results:
        sys.stdout.write(f"{verdict:6}  {text}{f': {why}' if why else ''}\n")
    broken = sum(verdict == "BROKEN" for _, verdict, _ in results)
    sys.stdout.write(f"{len(results) - broken} of {len(results)} promises are not broken\n")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
