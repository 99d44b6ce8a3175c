"""Browsers as environments: sessions, observations, actions, task suites."""
