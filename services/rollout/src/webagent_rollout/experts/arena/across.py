"""Experts for what spans two sites: they note what they found in the first tab and go on in the second."""

from __future__ import annotations

from collections.abc import Mapping

from webagent_rollout.experts.arena.admin import best_product, edit_product, to_customer
from webagent_rollout.experts.arena.maps import way
from webagent_rollout.experts.arena.shop import to_product
from webagent_rollout.experts.arena.shop_account import to_order
from webagent_rollout.experts.arena.steps import DONE, answer, fill, heading, note, noted, read, switch
from webagent_rollout.experts.script import Script, Turn


def order_way(turn: Turn) -> str:
    """Reads the order's town, then asks the map for the way."""
    day, place = turn.asked(r"my shop order of (.+) went to\. How .* to the (.+) on the map\?")
    town = noted(turn, "town")
    if town is None:
        return to_order(turn, day) or note("town", read(turn, r"To [^,]+, (\w+)\."), switch(1))
    return way(turn, town, place, "") or answer(read(turn, r"([\d.]+ km)"))


def customer_way(turn: Turn) -> str:
    """Reads the customer's town, then asks the map for the way."""
    name, place = turn.asked(r"the customer (.+) lives in\. How .* to the (.+) on the map\?")
    town = noted(turn, "town")
    if town is None:
        return to_customer(turn, name) or note("town", read(turn, r"Address: [^,]+, (\w+)"), switch(1))
    return way(turn, town, place, "car") or answer(read(turn, r"(\d+) minutes"))


def best_into_cart(turn: Turn) -> str:
    """Reads the report, then puts its first product into the cart."""
    first_day, last_day = turn.asked(r"from (\S+) to (\S+), and put")
    product = noted(turn, "product")
    if product is None:
        found, step = best_product(turn, first_day, last_day)
        return step or note("product", found, switch(1))
    return _add(turn, product, "1")


def restock_and_buy(turn: Turn) -> str:
    """Sets the stock, then puts the product into the cart."""
    product, stock, quantity = turn.asked(r"^The (.+) is sold out .* stock to (\d+) in .* put (\d+) of it")
    return _edit_and_buy(turn, product, {"Stock": stock}, quantity)


def price_and_buy(turn: Turn) -> str:
    """Sets the price, then puts the product into the cart."""
    product, price, quantity = turn.asked(r"^Set the price of the (.+) to \$(\S+) in .* put (\d+) of it")
    return _edit_and_buy(turn, product, {"Price": price}, quantity)


def _edit_and_buy(turn: Turn, product: str, wanted: dict[str, str], quantity: str) -> str:
    if noted(turn, "edit") is not None:
        return _add(turn, product, quantity)
    step = edit_product(turn, product, wanted)
    return note("edit", "done", switch(1)) if step == DONE else step


def _add(turn: Turn, product: str, quantity: str) -> str:
    """Puts some of a product into the shop's cart."""
    if heading(turn) == "Cart":
        return DONE
    return to_product(turn, product) or fill(turn, {"Quantity": quantity}, "Add to cart")


SCRIPTS: Mapping[str, Script] = {
    "across-best-cart": best_into_cart,
    "across-customer-way": customer_way,
    "across-order-way": order_way,
    "across-price-cart": price_and_buy,
    "across-restock-cart": restock_and_buy,
}
