# ruff: noqa: D100, F821, PLC0415, T201  (begins with common.testPreamble)
async def main():
    """A stored verdict judged again, and a statistic over two results."""
    from webagent.evaluator.v1 import evaluator_pb2 as pb
    from webagent.evaluator.v1 import evaluator_pb2_grpc

    async with channel() as front:
        stub = evaluator_pb2_grpc.EvaluatorServiceStub(front)
        results = [
            pb.EpisodeResult(task={"suite": "test", "task_id": str(index)}, site="test", outcome=outcome)
            for index, outcome in enumerate([pb.OUTCOME_SUCCESS, pb.OUTCOME_FAILURE, pb.OUTCOME_INVALID])
        ]
        summary = await stub.Summarize(pb.SummarizeRequest(results=results), timeout=SECONDS)
    assert (summary.overall.successes, summary.overall.scored, summary.overall.invalid) == (1, 2, 1), summary
    print("evaluator: one success of two scored episodes, one INVALID")
