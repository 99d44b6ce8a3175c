"""The configuration of the rollout service."""

from pydantic import Field
from webagent_runtime.config import (
    ClientConfig,
    Config,
    PayloadConfig,
    QueueConfig,
    ServerConfig,
    TelemetryConfig,
)


class TargetConfig(Config):
    """Another service, and how it is called."""

    target: str = Field(pattern=r":\d+$", description="host:port or dns:///name:port; several addresses: replicas")
    client: ClientConfig = ClientConfig()


class LimitsConfig(Config):
    """Bounds, in seconds, on everything that an episode waits for."""

    episode_seconds: float = Field(default=600.0, gt=0, description="one episode; then INVALID, EPISODE_TIMEOUT")
    create_seconds: float = Field(default=60.0, gt=0, description="one CreateSession call")
    step_seconds: float = Field(default=60.0, gt=0, description="one Step call")
    generate_seconds: float = Field(default=300.0, gt=0, description="one Render or Generate call")
    evaluate_seconds: float = Field(default=60.0, gt=0, description="one Evaluate call")
    close_seconds: float = Field(default=10.0, gt=0, description="one CloseSession call; then the lease closes it")
    outage_seconds: float = Field(default=120.0, ge=0, description="how long a service that is down is waited for")
    lease_seconds: float = Field(default=60.0, gt=0, description="env closes a session not heard of for this long")


class RolloutConfig(Config):
    """Plays episodes from the queue, where there is one, and by RunEpisode."""

    server: ServerConfig = ServerConfig(port=50054)
    telemetry: TelemetryConfig = TelemetryConfig()
    env: TargetConfig = TargetConfig(target="127.0.0.1:50051")
    inference: TargetConfig = TargetConfig(target="127.0.0.1:50052")
    evaluator: TargetConfig = TargetConfig(target="127.0.0.1:50053")
    queue: QueueConfig | None = Field(default=None, description="where requests come from; unset: RunEpisode only")
    payloads: PayloadConfig = Field(description="where screenshots, long pages and long trajectories go")
    concurrency: int = Field(default=16, ge=1, le=1024, description="episodes at once from the queue; as many called")
    limits: LimitsConfig = LimitsConfig()
