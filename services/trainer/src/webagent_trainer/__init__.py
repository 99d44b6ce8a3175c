"""Behaviour cloning and multi-turn GRPO with DeepSpeed."""
