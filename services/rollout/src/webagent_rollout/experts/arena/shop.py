"""Experts for the shop: finding products, and the cart."""

from __future__ import annotations

from collections.abc import Mapping

from webagent_rollout.experts.arena.steps import (
    DONE,
    NOT_POSSIBLE,
    answer,
    beside,
    fill,
    found_by_search,
    heading,
    link,
    link_like,
    note,
    noted,
    read,
    search,
)
from webagent_rollout.experts.page import Element
from webagent_rollout.experts.script import ExpertLost, Script, Turn, click, labelled, nth, type_text

SEARCH = "Search the shop"
# Links above every page.
MENU = 3
_DEAR, _CHEAP = "Price: high to low", "Price: low to high"


def results(product: str) -> str:
    """The heading of the page that a search for a product leads to."""
    return f'Results for "{product}"'


def to_product(turn: Turn, product: str) -> str | None:
    """The way to a product's page; an answer if it is not sold; None on the page."""
    return found_by_search(turn, SEARCH, product, results(product), product)


def price(turn: Turn) -> str:
    """Searches for the product and reads its price off the list."""
    (product,) = turn.asked(r"^What does the (.+) cost in the shop")
    if heading(turn) != results(product):
        return search(turn, SEARCH, product)
    found = labelled(turn, product, "a")
    return answer(_price(found[0]) if found else NOT_POSSIBLE)


def weight(turn: Turn) -> str:
    """Opens the product and reads its weight."""
    (product,) = turn.asked(r"^How much does the (.+) weigh")
    return to_product(turn, product) or answer(read(turn, r"Weight: (\d+) g"))


def extreme(turn: Turn) -> str:
    """Opens the category, sorts and bounds it, and opens the first product."""
    order, category, most = turn.asked(r"^Open the page of the (.+) product in the category (\w+) that .* \$(\d+)\.$")
    return _first_of(turn, order, category, most) or DONE


def count(turn: Turn) -> str:
    """Opens the category, bounds it, and reads how many there are."""
    category, most = turn.asked(r"^How many products in the category (\w+) cost no more than \$(\d+)\?")
    if heading(turn) != category:
        return link(turn, category)
    if f" up to ${most}." not in turn.page.text:
        return fill(turn, {"Up to $": most}, "Apply")
    return answer(read(turn, r"(\d+) products"))


def cheaper(turn: Turn) -> str:
    """Searches for the one, notes its price, searches for the other."""
    one, other = turn.asked(r"^Which is cheaper, the (.+) or the (.+)\?")
    if heading(turn) == results(one):
        return note("price", _price(nth(labelled(turn, one, "a"), 0, one)), search(turn, SEARCH, other))
    first = noted(turn, "price")
    if first is None or heading(turn) != results(other):
        return search(turn, SEARCH, one if first is None else other)
    second = _price(nth(labelled(turn, other, "a"), 0, other))
    return answer(one if _cents(first) < _cents(second) else other)


def reviewer(turn: Turn) -> str:
    """Opens the product's reviews and looks for the one with so many stars."""
    product, stars = turn.asked(r"^Who gave the (.+) (\d) stars")
    if heading(turn) != f"Reviews of {product}":
        return to_product(turn, product) or link_like(turn, "Reviews (")
    chunks = turn.page.chunks
    by = [chunks[i + 1] for i, chunk in enumerate(chunks[:-1]) if chunk == f"{stars} stars"]
    return answer(by[0].removeprefix("by ") if by else NOT_POSSIBLE)


def into_cart(turn: Turn) -> str:
    """Searches for the product, opens it, fills the form in and adds it."""
    quantity, product, colour = turn.asked(r"^Put (\d+) of the (.+) into the cart, in (\w+)\.$")
    if heading(turn) == "Cart":
        return DONE
    return to_product(turn, product) or fill(turn, {"Colour": colour.capitalize(), "Quantity": quantity}, "Add to cart")


def cheapest_twice(turn: Turn) -> str:
    """Finds the product in its category and adds two."""
    order, category, most = turn.asked(r"^Put the (.+) product of (\w+) that .* \$(\d+) into the cart")
    if heading(turn) == "Cart":
        return DONE
    return _first_of(turn, order, category, most) or fill(turn, {"Quantity": "2"}, "Add to cart")


def change_cart(turn: Turn) -> str:
    """Removes the one line, then changes the other."""
    quantity, kept, other = turn.asked(r"^Change the cart: (\d+) of the (.+), and no (.+)\.$")
    if heading(turn) != "Cart":
        return link_like(turn, "Cart (")
    lines = cart_lines(turn)
    if other in lines:
        return click(lines[other][3])
    if kept not in lines:
        raise ExpertLost(f"{kept} is not in the cart")
    field, update = lines[kept][1:3]
    if field.value != quantity:
        return type_text(field, quantity)
    return DONE if "Cart updated." in turn.page.chunks else click(update)


def cart_lines(turn: Turn) -> dict[str, list[Element]]:
    """The cart's lines by product: its link, quantity, Update and Remove."""
    numbered = turn.page.numbered
    lines = [numbered[i - 2 : i + 2] for i, each in enumerate(numbered) if each.text == "Update"]
    return {line[0].text: list(line) for line in lines}


def _first_of(turn: Turn, order: str, category: str, most: str) -> str | None:
    """The way to the first product of a category, sorted and bounded; None on a product's page."""
    if heading(turn) == "Welcome":
        return link(turn, category)
    if heading(turn) != category:
        return None
    sort = _CHEAP if order == "cheapest" else _DEAR
    if f" up to ${most}. {sort}." not in turn.page.text:
        return fill(turn, {"Sort by": sort, "Up to $": most}, "Apply")
    return click(nth(turn.page.tagged("a"), MENU, "product"))


def _price(product: Element) -> str:
    return beside(product).split()[0]


def _cents(amount: str) -> int:
    return int(amount.replace("$", "").replace(",", "").replace(".", ""))


SCRIPTS: Mapping[str, Script] = {
    "shop-cart": into_cart,
    "shop-cart-change": change_cart,
    "shop-cart-two": cheapest_twice,
    "shop-cheaper": cheaper,
    "shop-count": count,
    "shop-open": extreme,
    "shop-price": price,
    "shop-reviewer": reviewer,
    "shop-weight": weight,
}
