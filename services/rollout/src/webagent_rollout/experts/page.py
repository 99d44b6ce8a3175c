"""Reads an observation back into elements; whatever text comes in, parsing never fails.

Only elements with an `id` can be acted on. They are kept in document order, each with the loose text around it:
`lead` is the text since the numbered element before it, `trail` the text up to the numbered element after it. `chosen`
is the texts of a dropdown's selected options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass(frozen=True, slots=True)
class Element:
    """One element of an observation."""

    tag: str
    attributes: Mapping[str, str]
    text: str
    chosen: tuple[str, ...] = ()
    lead: tuple[str, ...] = ()
    trail: tuple[str, ...] = ()

    @property
    def number(self) -> str:
        """The number that actions name it by; empty for an element that cannot be acted on."""
        return self.attributes.get("id", "")

    @property
    def value(self) -> str:
        """What a field holds."""
        return self.attributes.get("data-value", "")

    @property
    def kind(self) -> str:
        """The `type` of an input; empty elsewhere."""
        return self.attributes.get("type", "")

    @property
    def checked(self) -> bool:
        """Whether a checkbox or radio button is on."""
        return self.attributes.get("data-status") == "checked"


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


@dataclass(slots=True)
class _Node:
    """An element while it is read: where its text begins and ends among the chunks, and what it lies in."""

    tag: str
    attributes: dict[str, str]
    parent: _Node | None
    start: int
    end: int = 0
    chosen: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    """Collects elements with the range of text chunks that each spans."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.chunks: list[str] = []
        self.nodes: list[_Node] = []
        self._open: list[_Node] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        """Opens an element."""
        attributes = {name: value or "" for name, value in attrs}
        node = _Node(tag, attributes, self._open[-1] if self._open else None, len(self.chunks))
        self.nodes.append(node)
        self._open.append(node)

    def handle_endtag(self, tag: str) -> None:
        """Closes an element and what was left open in it; an end without a beginning is ignored."""
        if any(node.tag == tag for node in self._open):
            while self._close(self._open.pop()).tag != tag:
                pass

    def handle_data(self, data: str) -> None:
        """Takes a chunk of text."""
        text = " ".join(data.split())
        if text:
            self.chunks.append(text)

    def close(self) -> None:
        """Ends the page; what is still open ends with it."""
        super().close()
        while self._open:
            self._close(self._open.pop())

    def _close(self, node: _Node) -> _Node:
        node.end = len(self.chunks)
        if node.tag == "option" and node.parent and node.attributes.get("data-status") == "selected":
            node.parent.chosen.append(" ".join(self.chunks[node.start : node.end]))
        return node


def parse(observation: str) -> Page:
    """Parses the simplified HTML of one observation."""
    reader = _Reader()
    reader.feed(observation)
    reader.close()
    chunks = reader.chunks
    acting = [node for node in reader.nodes if node.attributes.get("id")]
    leads = [0, *(node.end for node in acting)]
    trails = [*(node.start for node in acting[1:]), len(chunks)]
    return Page(
        elements=tuple(_element(node, chunks) for node in reader.nodes),
        numbered=tuple(
            _element(node, chunks, tuple(chunks[lead : node.start]), tuple(chunks[node.end : trail]))
            for node, lead, trail in zip(acting, leads, trails, strict=False)
        ),
        chunks=tuple(chunks),
    )


def _element(node: _Node, chunks: list[str], lead: tuple[str, ...] = (), trail: tuple[str, ...] = ()) -> Element:
    text = " ".join(chunks[node.start : node.end])
    return Element(node.tag, node.attributes, text, tuple(node.chosen), lead, trail)
