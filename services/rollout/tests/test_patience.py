"""Which faults are waited out."""

import pytest
from grpc import StatusCode
from webagent_rollout.patience import persist
from webagent_runtime.errors import ServiceError


class Service:
    """Raises what it is given, in order, and then answers."""

    def __init__(self, *errors: ServiceError) -> None:
        self._errors = list(errors)
        self.refusals: list[str] = []

    async def call(self) -> str:
        if self._errors:
            raise self._errors.pop(0)
        return "done"

    async def refused(self, error: ServiceError) -> None:
        self.refusals.append(error.reason)


def error(code: StatusCode, reason: str) -> ServiceError:
    return ServiceError(code, reason, "no", retry_after=0.001)


async def test_not_now_is_asked_again_however_long_an_outage_may_last() -> None:
    service = Service(
        error(StatusCode.RESOURCE_EXHAUSTED, "AT_CAPACITY"),
        error(StatusCode.RESOURCE_EXHAUSTED, "SITE_BUSY"),
        error(StatusCode.UNAVAILABLE, "VERSION_NOT_READY"),
        error(StatusCode.UNAVAILABLE, "DRAINING"),
    )
    assert await persist(service.call, outage_seconds=0, on_refusal=service.refused) == "done"
    assert service.refusals == ["AT_CAPACITY", "SITE_BUSY", "VERSION_NOT_READY", "DRAINING"]


async def test_a_service_that_comes_back_in_time_is_asked_again() -> None:
    service = Service(error(StatusCode.UNAVAILABLE, "UNAVAILABLE"), error(StatusCode.CANCELLED, "CANCELLED"))
    assert await persist(service.call, outage_seconds=30) == "done"


async def test_a_service_that_stays_away_passes_its_error_on() -> None:
    with pytest.raises(ServiceError, match="ENGINE_DEAD"):
        await persist(Service(error(StatusCode.UNAVAILABLE, "ENGINE_DEAD")).call, outage_seconds=0)


@pytest.mark.parametrize("code", [StatusCode.NOT_FOUND, StatusCode.DEADLINE_EXCEEDED, StatusCode.ABORTED])
async def test_any_other_error_passes_at_once(code: StatusCode) -> None:
    service = Service(error(code, "OTHER"))
    with pytest.raises(ServiceError, match="OTHER"):
        await persist(service.call, outage_seconds=30, on_refusal=service.refused)
    assert service.refusals == []
