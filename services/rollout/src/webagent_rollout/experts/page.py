"""Reads an observation back into elements; whatever text comes in, parsing never fails.

Only elements with an `id` can be acted on. They are kept in document order, each with the loose text around it:
`lead` is the text since the numbered element before it, `trail` the text up to the numbered element after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser


@dataclass(frozen=True, slots=True)
class Element:
    """One element of an observation."""

    tag: str
    attributes: Mapping[str, str]
    text: str
    lead: tuple[str, ...] = ()
    trail: tuple[str, ...] = ()

    @property
    def number(self) -> str:
        """The number that actions name it by; empty for an element that cannot be acted on."""
        return self.attributes.get("id", "")

    @property
    def value(self) -> str:
        """What a field holds, or which option a dropdown shows."""
        return self.attributes.get("data-value") or self.attributes.get("value", "")

    @property
    def kind(self) -> str:
        """The `type` of an input; empty elsewhere."""
        return self.attributes.get("type", "")

    @property
    def checked(self) -> bool:
        """Whether a checkbox or radio button is on."""
        return self.attributes.get("data-status") in {"checked", "selected"}


@dataclass(frozen=True, slots=True)
class Page:
    """An observation: all elements, the numbered ones, and the text chunks, each in document order."""

    elements: tuple[Element, ...]
    numbered: tuple[Element, ...]
    chunks: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of the page's text, chunks separated by single spaces."""
        return " ".join(self.chunks)

    def tagged(self, *tags: str) -> list[Element]:
        """Numbered elements with one of the tags."""
        return [element for element in self.numbered if element.tag in tags]


class _Reader(HTMLParser):
    """Collects elements with the range of text chunks that each spans."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.chunks: list[str] = []
        self.nodes: list[tuple[str, dict[str, str], int]] = []
        self.ends: dict[int, int] = {}
        self._open: list[int] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self._open.append(len(self.nodes))
        self.nodes.append((tag, {name: value or "" for name, value in attrs}, len(self.chunks)))

    def handle_endtag(self, tag: str) -> None:
        if not any(self.nodes[index][0] == tag for index in self._open):
            return
        while True:
            index = self._open.pop()
            self.ends[index] = len(self.chunks)
            if self.nodes[index][0] == tag:
                return

    def handle_data(self, data: str) -> None:
        text = " ".join(data.split())
        if text:
            self.chunks.append(text)


def parse(observation: str) -> Page:
    """Parses the simplified HTML of one observation."""
    reader = _Reader()
    reader.feed(observation)
    reader.close()
    chunks = reader.chunks
    spans = [(start, reader.ends.get(index, len(chunks))) for index, (_, _, start) in enumerate(reader.nodes)]
    numbered_at = [index for index, (_, attributes, _) in enumerate(reader.nodes) if attributes.get("id")]
    elements = [
        Element(tag, attributes, " ".join(chunks[slice(*spans[index])]))
        for index, (tag, attributes, _) in enumerate(reader.nodes)
    ]
    numbered = []
    for place, index in enumerate(numbered_at):
        start, end = spans[index]
        lead_from = spans[numbered_at[place - 1]][1] if place else 0
        trail_to = spans[numbered_at[place + 1]][0] if place + 1 < len(numbered_at) else len(chunks)
        element = elements[index]
        numbered.append(
            Element(element.tag, element.attributes, element.text, tuple(chunks[lead_from:start]), tuple(chunks[end:trail_to]))
        )
    return Page(tuple(elements), tuple(numbered), tuple(chunks))
