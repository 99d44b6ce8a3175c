"""The trainer's process: rank 0 serves, the other ranks follow it.

webagent-trainer --config FILE                                                       one rank
python -m torch.distributed.run --nproc_per_node N -m webagent_trainer --config FILE  N ranks
"""

from webagent_runtime.service import run_service

from webagent_trainer.config import TrainerConfig, check_run


async def serve(config: TrainerConfig) -> None:
    """Runs this rank until it is told to end."""
    if config.run is not None:
        check_run(config.run.run_directory.name, config.run)
    # Takes seconds to import: a wrong configuration has been told of by now.
    from webagent_trainer.service import serve_rank  # noqa: PLC0415

    await serve_rank(config)


def main() -> None:
    """Console entry."""
    run_service(TrainerConfig, serve, env_prefix="WEBAGENT_TRAINER", name="trainer")


if __name__ == "__main__":
    main()
