"""The console entry of a service: options, configuration, telemetry, event loop, exit code.

Exit codes: 0 ended as asked, 1 crashed (traceback on stderr), 2 could not start (one line on stderr), 130 and 143 ended
by SIGINT or SIGTERM before there was anything to drain.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from webagent_runtime import telemetry
from webagent_runtime.config import ConfigError, TelemetryConfig, load
from webagent_runtime.errors import ServiceError


class ServiceConfig(Protocol):
    """What `run_service` needs of a service's configuration."""

    @property
    def telemetry(self) -> TelemetryConfig:
        """Logs and traces."""


C = TypeVar("C", bound=ServiceConfig)


def run_service(
    config_model: type[C],
    serve: Callable[[C], Awaitable[None]],
    *,
    env_prefix: str,
    name: str,
    arguments: Sequence[str] | None = None,
) -> None:
    """Runs `serve(config)` to its end and exits the process with a code that says how it went."""
    options = _parser(name, env_prefix).parse_args(arguments)
    try:
        overrides = dict(_assignment(text) for text in options.set)
        config: C = load(config_model, options.config, env_prefix=env_prefix, overrides=overrides)  # type: ignore[type-var]
        telemetry.setup(config.telemetry, name)
        asyncio.run(_await(serve, config))
    except (ConfigError, ServiceError) as error:
        sys.stderr.write(f"{name}: {' '.join(str(error).split())}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except asyncio.CancelledError:
        sys.exit(143)
    finally:
        telemetry.shutdown()


async def _await(serve: Callable[[C], Awaitable[None]], config: C) -> None:
    """Until a Server takes signals over, SIGTERM cancels `serve`, as SIGINT does by itself."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await serve(config)


def _parser(name: str, env_prefix: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"webagent-{name}",
        description=f"Variables {env_prefix}__SECTION__KEY override the file, --set overrides both.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML configuration")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="override one key")
    return parser


def _assignment(text: str) -> tuple[str, object]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {text}: write it as section.key=value")
    return key, value
