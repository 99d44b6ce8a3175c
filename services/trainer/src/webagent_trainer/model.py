"""The policy as a module: a Hugging Face causal language model that reads packs.

`PackedModel` returns one log-probability per reply token of a pack, and the policy's entropy at some of them. Attention
runs segment by segment, so nothing is padded and no token attends to another row; the output head runs only where a
next token is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_utils import AttentionInterface

from webagent_trainer.packing import Pack, Segment

_ATTENTION = "webagent_packed"
# The entropy of this many reply tokens tells a pack's well enough; each takes another pass over the vocabulary.
_ENTROPY_TOKENS = 128


def _packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    segments: Sequence[Segment] | None = None,
    masks: Sequence[Tensor | None] = (),
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of one stream, [1, heads, tokens, size], segment by segment; without segments, of plain text."""
    if segments is None:
        return _plain_attention(query, key, value, scaling), None
    lengths = [segment.length for segment in segments]
    keys, values = torch.split(key, lengths, dim=2), torch.split(value, lengths, dim=2)
    outputs = []
    for index, (part, segment) in enumerate(zip(torch.split(query, lengths, dim=2), segments, strict=True)):
        seen = (*segment.parents, index)
        outputs.append(
            nn.functional.scaled_dot_product_attention(
                part,
                torch.cat([keys[i] for i in seen], dim=2) if len(seen) > 1 else keys[index],
                torch.cat([values[i] for i in seen], dim=2) if len(seen) > 1 else values[index],
                attn_mask=masks[index],
                is_causal=masks[index] is None,
                scale=scaling,
                enable_gqa=key.shape[1] != query.shape[1],
            )
        )
    return torch.cat(outputs, dim=2).transpose(1, 2), None


def _plain_attention(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    """A prompt, or one more token after what is in the cache."""
    output = nn.functional.scaled_dot_product_attention(
        query,
        key,
        value,
        is_causal=query.shape[2] > 1,
        scale=scaling,
        enable_gqa=key.shape[1] != query.shape[1],
    )
    return output.transpose(1, 2)


AttentionInterface.register(_ATTENTION, _packed_attention)


class PackedModel(nn.Module):
    """A causal language model over packs."""

    # Of transformers, which has no types.
    causal_lm: Any

    def __init__(self, causal_lm: nn.Module) -> None:
        super().__init__()
        self.causal_lm = causal_lm

    def forward(self, pack: Pack, temperature: float = 1.0, states: bool = False) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the pack's reply tokens, [sum of reply_lengths], float32.

        And the entropy at up to 128 of them, evenly spread, without gradient; at none where no gradient is wanted.
        With `states` instead the hidden state that each row's reply begins from, [rows, width], and nothing else.
        """
        weight: Tensor = self.causal_lm.lm_head.weight
        masks = [_additive(segment.mask, weight) for segment in pack.segments]
        hidden = self.causal_lm.model(
            input_ids=pack.token_ids.to(weight.device)[None],
            position_ids=pack.positions.to(weight.device)[None],
            use_cache=False,
            segments=pack.segments,
            masks=masks,
        ).last_hidden_state[0]
        if states:
            firsts = torch.tensor([0, *pack.reply_lengths[:-1]]).cumsum(0)
            places = pack.nodes[pack.sources[firsts]].to(weight.device)
            return hidden[places].float(), hidden.new_zeros(0)
        logits: Tensor = self.causal_lm.lm_head(hidden[pack.nodes.to(weight.device)]).float() / temperature
        sources, targets = pack.sources.to(weight.device), pack.targets.to(weight.device)
        logprobs = logits[sources, targets] - logits.logsumexp(dim=-1)[sources]
        return logprobs, _entropies(logits.detach(), sources) if torch.is_grad_enabled() else logprobs.new_zeros(0)


def _entropies(logits: Tensor, sources: Tensor) -> Tensor:
    chosen = sources[:: -(-len(sources) // _ENTROPY_TOKENS)]
    values = logits[chosen].log_softmax(dim=-1)
    return -(values.exp() * values).sum(dim=-1)


def _additive(mask: Tensor | None, like: Tensor) -> Tensor | None:
    if mask is None:
        return None
    zeros = torch.zeros(mask.shape, dtype=like.dtype, device=like.device)
    return zeros.masked_fill_(~mask.to(like.device), -torch.inf)


def load_model(path: Path, *, dtype: torch.dtype) -> PackedModel:
    """The model in a directory of safetensors."""
    config = AutoConfig.from_pretrained(path, local_files_only=True)
    causal_lm = AutoModelForCausalLM.from_pretrained(
        path, config=config, dtype=dtype, attn_implementation=_ATTENTION, local_files_only=True
    )
    return PackedModel(causal_lm)
