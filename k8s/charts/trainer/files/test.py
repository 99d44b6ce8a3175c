# ruff: noqa: D100, F821, PLC0415, PT017, T201  (begins with common.testPreamble)
async def main():
    """The trainer answers for a run: by its state, or that there is none."""
    from webagent.trainer.v1 import trainer_pb2, trainer_pb2_grpc

    async with channel() as front:
        stub = trainer_pb2_grpc.TrainerServiceStub(front)
        try:
            answer = await stub.GetRun(trainer_pb2.GetRunRequest(run_id=os.environ["RUN_ID"]), timeout=SECONDS)
        except grpc.aio.AioRpcError as error:
            assert error.code() == grpc.StatusCode.NOT_FOUND, error
            print("trainer: waits for a run")
        else:
            print("trainer:", trainer_pb2.RunState.Name(answer.status.state))
