"""The policy: token ids in, token ids out, new weights while it runs."""
