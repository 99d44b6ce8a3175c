# ruff: noqa: D100, F821, PLC0415, T201  (begins with common.testPreamble)
async def main():
    """An episode played by a scripted expert, from the first page to the verdict."""
    from webagent.rollout.v1 import rollout_pb2, rollout_pb2_grpc
    from webagent.trajectory.v1 import trajectory_pb2

    async with channel() as front:
        stub = rollout_pb2_grpc.RolloutServiceStub(front)
        known = await stub.GetCapabilities(rollout_pb2.GetCapabilitiesRequest(), timeout=SECONDS)
        episode = trajectory_pb2.EpisodeSpec(
            episode_id=f"helm-test-{uuid.uuid4()}",
            task=known.experts[0],
            seed=1,
            agent={"prompt": known.prompts[0], "max_turns": 10},
            expert={},
        )
        finished = None
        call = stub.RunEpisode(rollout_pb2.RunEpisodeRequest(episode=episode), timeout=SECONDS)
        async for event in call:
            if event.HasField("finished"):
                finished = event.finished.trajectory
    assert finished is not None
    assert finished.status == trajectory_pb2.EPISODE_STATUS_SCORED, (finished.reason, finished.detail)
    print("rollout: an episode was played and scored", finished.reward)
