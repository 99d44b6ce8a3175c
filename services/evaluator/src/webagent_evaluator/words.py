"""The words that WebArena-Lite's evaluators see: NLTK's `word_tokenize` with the English Punkt model.

The sentence splitter is a package that carries the model, so nothing is downloaded; both are loaded at the first use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache


@lru_cache(maxsize=16)
def words(text: str) -> tuple[str, ...]:
    """The tokens of a text; a page is looked through for one item after another, so the last few are remembered."""
    sentences, tokens = _tokenizers()
    return tuple(token for sentence in sentences(text) for token in tokens(sentence))


@cache
def _tokenizers() -> tuple[Callable[[str], list[str]], Callable[[str], list[str]]]:
    import punkt  # noqa: PLC0415
    from nltk.tokenize.destructive import NLTKWordTokenizer  # noqa: PLC0415

    return punkt.tokenizer_for("english").tokenize, NLTKWordTokenizer().tokenize
