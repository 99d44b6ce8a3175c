"""The webagent command: starts the local stack, trains, evaluates, plays, reports."""
