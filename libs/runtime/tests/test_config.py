"""Configuration: three sources in order, and one clear line for whatever is wrong."""

import subprocess
import sys
from pathlib import Path
from typing import Literal

import pydantic
import pytest
from webagent_runtime.config import Config, ConfigError, ServerConfig, TelemetryConfig, load, validate


class Browser(Config):
    """A nested block."""

    executable: str = "chromium"
    sizes: tuple[int, ...] = (1, 2)
    low: int = 1
    high: int = 5

    @pydantic.model_validator(mode="after")
    def _ordered(self) -> "Browser":
        if self.low > self.high:
            raise ValueError("low must not be above high")
        return self


class Settings(Config):
    """A service's whole configuration."""

    server: ServerConfig = ServerConfig(port=50051)
    telemetry: TelemetryConfig = TelemetryConfig()
    browser: Browser = Browser()
    mode: Literal["fast", "slow"] = "fast"
    path: Path | None = None
    limit: int | None = 3


@pytest.fixture
def write(tmp_path: Path):
    def to_file(text: str) -> Path:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path

    return to_file


def test_without_any_source_the_defaults_hold():
    assert load(Settings, None, env_prefix="WEBAGENT_TEST").server.port == 50051


def test_overrides_win_over_environment_and_environment_over_file(write, monkeypatch):
    path = write("server: {port: 1, host: file, metrics_port: 9}\nmode: slow\n")
    monkeypatch.setenv("WEBAGENT_TEST__SERVER__PORT", "2")
    monkeypatch.setenv("WEBAGENT_TEST__SERVER__HOST", "environment")
    config = load(Settings, path, env_prefix="WEBAGENT_TEST", overrides={"server.port": "3"})
    assert (config.server.port, config.server.host, config.server.metrics_port) == (3, "environment", 9)
    assert config.mode == "slow"


def test_a_block_given_in_part_keeps_the_rest_of_its_default():
    config = validate(Settings, {"server": {"host": "0.0.0.0"}}, source="here")
    assert config.server == ServerConfig(port=50051, host="0.0.0.0")


def test_text_values_take_the_type_of_their_field(monkeypatch):
    monkeypatch.setenv("WEBAGENT_TEST__BROWSER__EXECUTABLE", "123")
    monkeypatch.setenv("WEBAGENT_TEST__BROWSER__SIZES", "[4, 5]")
    monkeypatch.setenv("WEBAGENT_TEST__LIMIT", "null")
    monkeypatch.setenv("WEBAGENT_TEST__SERVER__REFLECTION", "false")
    config = load(Settings, None, env_prefix="WEBAGENT_TEST")
    assert (config.browser.executable, config.browser.sizes, config.limit) == ("123", (4, 5), None)
    assert config.server.reflection is False


def test_an_unknown_key_in_the_file_is_refused_with_the_nearest_one(write):
    path = write("server: {prot: 1}\n")
    with pytest.raises(ConfigError, match=r"config.yaml: unknown key server.prot; .*server.port$"):
        load(Settings, path, env_prefix="WEBAGENT_TEST")


def test_an_unknown_variable_is_refused_by_its_own_name(monkeypatch):
    monkeypatch.setenv("WEBAGENT_TEST__BROWSER__EXECUTBLE", "x")
    with pytest.raises(
        ConfigError, match=r"WEBAGENT_TEST__BROWSER__EXECUTBLE: .*nearest known key is browser.executable"
    ):
        load(Settings, None, env_prefix="WEBAGENT_TEST")


def test_a_key_in_the_wrong_section_is_found_in_the_right_one():
    with pytest.raises(ConfigError, match=r"--set metrics_port: .*nearest known key is server.metrics_port"):
        load(Settings, None, env_prefix="WEBAGENT_TEST", overrides={"metrics_port": 1})


def test_another_programs_variables_are_ignored(monkeypatch):
    monkeypatch.setenv("WEBAGENT_TESTING__NONSENSE", "x")
    monkeypatch.setenv("WEBAGENT_TEST_OTHER", "x")
    load(Settings, None, env_prefix="WEBAGENT_TEST")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"server": {"port": 70000}}, "here: server.port: input should be less than or equal to 65535 (got 70000)"),
        ({"browser": {"low": 9}}, "here: browser: low must not be above high"),
        ({"mode": "medium"}, "here: mode: input should be 'fast' or 'slow' (got 'medium')"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_key(values, expected):
    with pytest.raises(ConfigError) as caught:
        validate(Settings, values, source="here")
    assert str(caught.value) == expected


def test_every_problem_is_named():
    with pytest.raises(ConfigError, match=r"server.port.*; .*mode"):
        validate(Settings, {"server": {"port": -1}, "mode": 5}, source="here")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("server: [", "not valid YAML"), ("- a\n", "must hold a mapping"), ("server: 5\n", "server: ")],
)
def test_a_file_that_is_no_configuration_is_named(write, text, expected):
    with pytest.raises(ConfigError, match=expected) as caught:
        load(Settings, write(text), env_prefix="WEBAGENT_TEST")
    assert "config.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load(Settings, tmp_path / "none.yaml", env_prefix="WEBAGENT_TEST")


def test_a_value_in_place_of_a_section_is_named():
    with pytest.raises(ConfigError, match="mode is a value, not a section"):
        load(Settings, None, env_prefix="WEBAGENT_TEST", overrides={"mode": "fast", "mode.port": 1})


def test_an_empty_file_means_the_defaults(write):
    assert load(Settings, write(""), env_prefix="WEBAGENT_TEST") == Settings()


def test_config_blocks_cannot_be_changed():
    with pytest.raises(pydantic.ValidationError):
        Settings().server.port = 1


def test_serving_needs_neither_the_queue_nor_torch():
    modules = "server, client, service, telemetry, config, errors, metrics, health, delimited"
    code = (
        f"from webagent_runtime import {modules}; import sys; "
        "print([name for name in ('nats', 'fsspec', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
