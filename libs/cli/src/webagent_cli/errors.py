"""What ends a run although its configuration is right. A wrong configuration or machine is a `ConfigError`."""


class RunError(Exception):
    """The run cannot go on; the message says why, in a line for people, log lines below it where they help."""
