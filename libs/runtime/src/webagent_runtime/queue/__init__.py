"""The trajectory queue: requests and trajectories, policy versions and dead letters, on NATS JetStream."""

from webagent_runtime.queue.consumer import Consumer, Delivery
from webagent_runtime.queue.queue import Queue

__all__ = ["Consumer", "Delivery", "Queue"]
