"""The OpenAI-compatible face: chat completions over HTTP, for agent frameworks that speak nothing else."""
