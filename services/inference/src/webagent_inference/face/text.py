"""Tokens to text while they come: whole characters only, and nothing of what may turn out to be a stop string."""

from collections.abc import Callable, Sequence

from webagent_inference.watch import Stops

_BROKEN = "\N{REPLACEMENT CHARACTER}"


class TextStream:
    """The text of a reply in the making."""

    def __init__(self, text: Callable[[Sequence[int]], str], stops: Sequence[str]) -> None:
        self._text = text
        self._stops = Stops(stops, text) if stops else None
        # The beginning of a stop string is held back until the next token decides.
        self._held = max((len(stop) for stop in stops), default=1) - 1
        self._token_ids: list[int] = []
        self._anchor = 0
        self._read = 0
        self._pending = ""

    def add(self, token: int) -> str:
        """What can be shown once this token is there."""
        self._token_ids.append(token)
        # Decoded from a little earlier on: the first token of a text may lose the space before it.
        before = self._text(self._token_ids[self._anchor : self._read])
        after = self._text(self._token_ids[self._anchor :])
        if after.endswith(_BROKEN) and len(self._token_ids) - self._read < 8:
            return ""
        self._pending += after[len(before) :]
        self._anchor, self._read = self._read, len(self._token_ids)
        sure = len(self._pending) - self._held
        if self._stops is not None:
            sure = min(sure, len(self._stops.cut(self._pending)))
        return self._show(sure)

    def end(self) -> str:
        """What is left when the reply has ended."""
        before = self._text(self._token_ids[self._anchor : self._read])
        self._pending += self._text(self._token_ids[self._anchor :])[len(before) :]
        self._anchor = self._read = len(self._token_ids)
        if self._stops is not None:
            self._pending = self._stops.cut(self._pending)
        return self._show(len(self._pending))

    def _show(self, count: int) -> str:
        shown = self._pending[: max(0, count)]
        self._pending = self._pending[len(shown) :]
        return shown
