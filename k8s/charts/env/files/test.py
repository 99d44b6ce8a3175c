# ruff: noqa: D100, F821, PLC0415, T201  (begins with common.testPreamble)
async def main():
    """One session of one task: created, stepped, closed."""
    from webagent.env.v1 import env_pb2, env_pb2_grpc

    session_id = f"helm-test-{uuid.uuid4()}"
    async with channel() as front:
        stub = env_pb2_grpc.EnvironmentServiceStub(front)
        tasks = (await stub.ListTasks(env_pb2.ListTasksRequest(), timeout=SECONDS)).tasks
        request = env_pb2.CreateSessionRequest(session_id=session_id, task=tasks[0].task, seed=1)
        created = await stub.CreateSession(request, timeout=SECONDS)
    print("instruction:", created.instruction)
    # The session lives on one replica, whatever the name resolves to next time.
    async with channel(created.session.address) as replica:
        stub = env_pb2_grpc.EnvironmentServiceStub(replica)
        step = env_pb2.StepRequest(session_id=session_id, step_index=0, action=env_pb2.Action(wait={}))
        stepped = await stub.Step(step, timeout=SECONDS)
        assert stepped.result.status == env_pb2.ACTION_STATUS_OK, stepped.result
        assert stepped.observation.text
        await stub.CloseSession(env_pb2.CloseSessionRequest(session_id=session_id), timeout=SECONDS)
    print("env: a session was created, stepped and closed")
