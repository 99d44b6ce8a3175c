"""The Prometheus metrics that every dashboard may rely on. Names, labels and meanings are fixed here."""

from prometheus_client import Counter, Gauge, Histogram

RPCS = Counter("webagent_rpcs", "Calls answered, by method and status code.", ["method", "code"])
RPC_SECONDS = Histogram(
    "webagent_rpc_seconds",
    "Time from a call's arrival to its end, by method and status code.",
    ["method", "code"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
)
SESSIONS = Gauge("webagent_sessions", "Sessions or episodes in work on this replica.")
SESSION_CAPACITY = Gauge("webagent_session_capacity", "Sessions or episodes that this replica takes at most.")
OLDEST_PENDING = Gauge("webagent_oldest_pending_seconds", "Age of the oldest message on a stream.", ["stream"])
DEAD_LETTERS = Gauge("webagent_dead_letters", "Messages on the stream of dead letters.")
INVALID_SHARE = Gauge("webagent_invalid_share", "Share of INVALID among the run's newest outcomes, 0 to 1.")
SERVED_VERSION = Gauge("webagent_served_version", "Policy version that this replica serves; 0 is the base model.")
