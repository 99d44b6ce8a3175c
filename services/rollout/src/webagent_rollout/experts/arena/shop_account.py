"""Experts for the shop's pages for customers: orders, checkout, wish list, reviews, addresses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from webagent_rollout.experts.arena.shop import MENU, SEARCH, cart_lines, to_product
from webagent_rollout.experts.arena.steps import (
    DONE,
    NOT_POSSIBLE,
    answer,
    fill,
    heading,
    link,
    link_like,
    note,
    noted,
    read,
    row_of,
    search,
    shown,
    through_pages,
)
from webagent_rollout.experts.script import Script, Turn, click, nth


def order_total(turn: Turn) -> str:
    """Finds the order of that day and reads its total."""
    (day,) = turn.asked(r"^What was the total of my order of (.+)\? Answer")
    return to_order(turn, day) or answer(read(turn, r"total (\$[\d,.]+)"))


def order_open(turn: Turn) -> str:
    """Shows the orders of that status and opens the first that is old enough."""
    status, day = turn.asked(r"^Open my newest (\w+) order that was placed before (.+)\.$")
    at = heading(turn)
    if at.startswith("Order "):
        return DONE
    if at != "Orders":
        return _orders(turn)
    if f" {status} orders" not in turn.page.text:
        return fill(turn, {"Status": status.capitalize()}, "Show")
    rows = [each for each in turn.page.tagged("a")[MENU:] if each.text.isdecimal()]
    return through_pages(turn, next((each for each in rows if _date(each.trail[0]) < _date(day)), None))


def _date(text: str) -> datetime:
    return datetime.strptime(text, "%b %d, %Y")


def reorder(turn: Turn) -> str:
    """Finds the order of that day and puts it into the cart again."""
    (day,) = turn.asked(r"^Order again what I bought on (.+): put")
    return DONE if heading(turn) == "Cart" else to_order(turn, day) or link(turn, "Reorder")


def cancel(turn: Turn) -> str:
    """Finds the order of that day and cancels it, if there is a button for that."""
    (day,) = turn.asked(r"^Cancel my order of ([^.]+)\.")
    step = to_order(turn, day)
    if step is not None:
        return step
    if shown(turn, "Cancel order"):
        return link(turn, "Cancel order")
    return DONE if "The order is canceled." in turn.page.chunks else answer(NOT_POSSIBLE)


def checkout(turn: Turn) -> str:
    """Checks the cart out, with every field as told."""
    shipping, street, town, payment = turn.asked(r"with shipping (\w+) to (.+), (.+), and pay by (\w+)\.$")
    wanted = {"Street": street, "Town": town, "Shipping": shipping.capitalize(), "Payment": payment.capitalize()}
    return _check_out(turn, wanted)


def buy_only(turn: Turn) -> str:
    """Removes the other lines from the cart and checks it out."""
    product, shipping, payment = turn.asked(r"^Buy only the (.+) that is in .* shipping (\w+), and pay by (\w+)\.$")
    if heading(turn) == "Cart":
        others = [line for name, line in cart_lines(turn).items() if name != product]
        if others:
            return click(others[0][3])
    return _check_out(turn, {"Shipping": shipping.capitalize(), "Payment": payment.capitalize()})


def buy_new(turn: Turn) -> str:
    """Empties the cart, adds the product and checks it out."""
    quantity, product, shipping, payment = turn.asked(
        r"^Empty the cart, then buy (\d+) of the (.+) with shipping (\w+), and pay by (\w+)\.$"
    )
    at = heading(turn)
    if at in {"Checkout", "Cart"} or at.startswith("Order "):
        lines = cart_lines(turn) if at == "Cart" else {product: []}
        others = [line for name, line in lines.items() if name != product]
        if others:
            return click(others[0][3])
        if lines:
            return _check_out(turn, {"Shipping": shipping.capitalize(), "Payment": payment.capitalize()})
        return search(turn, SEARCH, product)
    if at == "Welcome":
        return link_like(turn, "Cart (")
    return to_product(turn, product) or fill(turn, {"Quantity": quantity}, "Add to cart")


def sign_in(turn: Turn) -> str:
    """Signs in and reads the newest order's status."""
    email, password = turn.asked(r"^Sign in as (\S+) with the password (\S+) and")
    at = heading(turn)
    if at == "Sign in":
        return fill(turn, {"Email": email, "Password": password}, "Sign in")
    if at == "Orders":
        newest = nth(turn.page.tagged("a"), MENU, "order")
        return answer(newest.trail[1])
    return link(turn, "Log in") if shown(turn, "Log in") else _orders(turn)


def wish(turn: Turn) -> str:
    """Finds the product and puts it on the list."""
    (product,) = turn.asked(r"^Put the (.+) on my wish list")
    return DONE if heading(turn) == "Wish list" else to_product(turn, product) or link(turn, "Add to wish list")


def wish_to_cart(turn: Turn) -> str:
    """Adds the product to the cart from its page, then removes it from the list."""
    quantity, product = turn.asked(r"^Put (\d+) of the (.+) from my wish list into the cart")
    at = heading(turn)
    if at == product:
        return fill(turn, {"Quantity": quantity}, "Add to cart")
    if at == "Cart":
        return note("cart", "done", link(turn, "Account"))
    if at != "Wish list":
        return link(turn, "Wish list") if at == "Account" else link(turn, "Account")
    numbered = turn.page.numbered
    places = [i for i, each in enumerate(numbered) if each.tag == "a" and each.text == product]
    if not places:
        return DONE
    return click(numbered[places[0] + (1 if noted(turn, "cart") else 0)])


def review(turn: Turn) -> str:
    """Finds the product's reviews and writes one."""
    product, stars, title, text = turn.asked(
        r'^Review the (.+) with (\d) stars, the title "(.+)" and the text "(.+)"\.$'
    )
    at = heading(turn)
    if at == f"Your review of {product}":
        return fill(turn, {"Rating": stars, "Title": title, "Review": text}, "Submit review")
    if at == f"Reviews of {product}":
        return DONE if "Thank you for your review." in turn.page.chunks else link(turn, "Write a review")
    return to_product(turn, product) or link_like(turn, "Reviews (")


def address(turn: Turn) -> str:
    """Opens the address book's form and fills it in."""
    name, street, town = turn.asked(r"address book: (.+), (.+), (.+)\.$")
    if heading(turn) != "Address book":
        return link(turn, "Address book") if heading(turn) == "Account" else link(turn, "Account")
    if f"{name}, {street}, {town}" in turn.page.chunks:
        return DONE
    if not shown(turn, "Save address"):
        return link(turn, "New address")
    return fill(turn, {"Name": name, "Street": street, "Town": town}, "Save address")


def phone(turn: Turn) -> str:
    """Changes the phone number in the account."""
    (number,) = turn.asked(r"to (\S+)\.$")
    if heading(turn) != "Account":
        return link(turn, "Account")
    if "Your account is updated." in turn.page.chunks:
        return DONE
    return fill(turn, {"Phone": number}, "Save")


def _orders(turn: Turn) -> str:
    return link(turn, "Orders") if heading(turn) == "Account" else link(turn, "Account")


def to_order(turn: Turn, day: str) -> str | None:
    """The way to the order of a day; an answer if there is none; None on its page."""
    at = heading(turn)
    if at.startswith("Order "):
        return None
    if at != "Orders":
        return _orders(turn)
    return through_pages(turn, row_of(turn, day))


def _check_out(turn: Turn, wanted: Mapping[str, str]) -> str:
    at = heading(turn)
    if at.startswith("Order "):
        return DONE
    if at == "Checkout":
        return fill(turn, dict(wanted), "Place order")
    return link(turn, "Checkout") if at == "Cart" else link_like(turn, "Cart (")


SCRIPTS: Mapping[str, Script] = {
    "shop-address": address,
    "shop-buy-new": buy_new,
    "shop-buy-only": buy_only,
    "shop-cancel": cancel,
    "shop-checkout": checkout,
    "shop-order-open": order_open,
    "shop-order-total": order_total,
    "shop-phone": phone,
    "shop-reorder": reorder,
    "shop-review": review,
    "shop-sign-in": sign_in,
    "shop-wish": wish,
    "shop-wish-buy": wish_to_cart,
}
