"""The agent loop: prompts, replies, steps, one outcome per episode."""
