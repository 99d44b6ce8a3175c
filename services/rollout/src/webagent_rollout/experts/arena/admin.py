"""Experts for the shop's administration."""

from __future__ import annotations

from collections.abc import Mapping

from webagent_rollout.experts.arena.steps import (
    DONE,
    NOT_POSSIBLE,
    answer,
    control,
    fill,
    heading,
    link,
    note,
    noted,
    read,
    shown,
)
from webagent_rollout.experts.page import Element
from webagent_rollout.experts.script import ExpertLost, Script, Turn, click, first, labelled, nth

# Links above every page, without those of the menu that unfolds.
MENU = 4
_PLACES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")
_SAVED = ("The product is saved.", "The order is saved.", "The customer is saved.")


# ---- products --------------------------------------------------------------------------------------------------------
def stock(turn: Turn) -> str:
    """Searches for the product and reads the last column."""
    (product,) = turn.asked(r"^How many of the (.+) are in stock")
    found = _filtered(turn, "Products", {"Name or SKU": product})
    if isinstance(found, str):
        return found
    rows = [each for each in found if each.text == product]
    return answer(rows[0].trail[2] if rows else NOT_POSSIBLE)


def set_price(turn: Turn) -> str:
    """Opens the product, types the price, saves."""
    product, price = turn.asked(r"^Set the price of the (.+) to \$(\S+)\.$")
    return edit_product(turn, product, {"Price": price})


def set_two_prices(turn: Turn) -> str:
    """Edits the one, then the other."""
    one, price, other, other_price = turn.asked(
        r"^Set the price of the (.+) to \$(\S+) and that of the (.+) to \$(\S+)\.$"
    )
    if noted(turn, "first") is not None:
        return edit_product(turn, other, {"Price": other_price})
    step = edit_product(turn, one, {"Price": price})
    return note("first", "done", link(turn, "Products")) if step == DONE else step


def lower_price(turn: Turn) -> str:
    """Opens the product, types the price less the dollars, saves."""
    product, dollars = turn.asked(r"^Lower the price of the (.+) by (\d+) dollars")
    if not heading(turn).startswith("Product "):
        return edit_product(turn, product, {})
    if _saved(turn):
        return DONE
    lower = noted(turn, "price")
    if lower is not None:
        return fill(turn, {"Price": lower}, "Save")
    whole, cents = control(turn, "Price").value.split(".")
    lower = f"{int(whole) - int(dollars)}.{cents}"
    return note("price", lower, fill(turn, {"Price": lower}, "Save"))


def restock(turn: Turn) -> str:
    """Finds the product by its number, types the stock, takes it offline, saves."""
    sku, number = turn.asked(r"SKU (\S+) to (\d+), and")
    return edit_product(turn, sku, {"Stock": number, "Online": "No"})


def rename(turn: Turn) -> str:
    """Opens the product, types the name, saves."""
    product, name = turn.asked(r"^Rename the (.+) to (.+)\.$")
    return edit_product(turn, product, {"Name": name})


def new_product(turn: Turn) -> str:
    """Fills the form for a new product in."""
    name, category, sku, price, number = turn.asked(
        r"^Create the product (.+) in the category (\w+): SKU (\S+), price \$(\S+), stock (\d+)\.$"
    )
    at = heading(turn)
    if at.startswith("Product "):
        return DONE
    if at != "New product":
        return link(turn, "New product" if at == "Products" else "Products")
    return fill(turn, {"Name": name, "SKU": sku, "Category": category, "Price": price, "Stock": number}, "Create")


def lowest(turn: Turn) -> str:
    """Filters and sorts the products and opens the one at that place."""
    category, place, what = turn.asked(r"category (\w+) with the (\w+) lowest (\w+),")
    if heading(turn).startswith("Product "):
        return DONE
    found = _filtered(turn, "Products", {"Category": category, "Sort by": what.capitalize()})
    return found if isinstance(found, str) else click(found[_PLACES.index(place)])


# ---- reviews ---------------------------------------------------------------------------------------------------------
def pending_review(turn: Turn) -> str:
    """Goes through the pending reviews to the one, and presses its button."""
    what, product, nickname = turn.asked(r"^(\w+) the pending review of the (.+) by (\w+)\.$")
    if heading(turn) != "Pending reviews":
        return link(turn, "Reviews")
    if f"The review is {what.lower()}d." in turn.page.chunks:
        return DONE
    for button in labelled(turn, what, "button"):
        row = _row_before(turn, button, 1 if what == "Delete" else 0)
        if row[:1] == (nickname,) and product in row:
            return click(button)
    return link(turn, "Next")


def purge(turn: Turn) -> str:
    """Deletes reviews with few stars, from the product's list, until there is none."""
    product, most = turn.asked(r"the (.+) (\d) stars or fewer\.$")
    if heading(turn) != f"Reviews of {product}":
        return fill(turn, {"Product": product}, "Show") if heading(turn) == "Pending reviews" else link(turn, "Reviews")
    for button in labelled(turn, "Delete", "button"):
        if int(_row_before(turn, button, 1)[1].split()[0]) <= int(most):
            return click(button)
    return DONE


def _row_before(turn: Turn, button: Element, skipped: int) -> tuple[str, ...]:
    """The texts of the row that a button ends; `skipped` buttons may stand between."""
    index = turn.page.numbered.index(button)
    for each in turn.page.numbered[index : max(0, index - skipped - 1) : -1]:
        if each.lead:
            return each.lead[-4:] if "Approved" in each.lead or "Pending" in each.lead else each.lead[-3:]
    raise ExpertLost("the button stands in no row")


# ---- reports ---------------------------------------------------------------------------------------------------------
def sales(turn: Turn) -> str:
    """Has the report made and reads the amount."""
    first_day, last_day = turn.asked(r"from (\S+) to (\S+)\?")
    step = _report(turn, "Sales", first_day, last_day)
    return step or answer(read(turn, r"Sales \d+ (\$[\d,.]+)"))


def best(turn: Turn) -> str:
    """Has the report made and reads its first line."""
    first_day, last_day = turn.asked(r"from (\S+) to (\S+)\?")
    product, step = best_product(turn, first_day, last_day)
    return step or answer(product)


def best_product(turn: Turn, first_day: str, last_day: str) -> tuple[str, str | None]:
    """The first line of the report; until it is there, the next step."""
    step = _report(turn, "Bestsellers", first_day, last_day)
    chunks = turn.page.chunks
    return ("", step) if step is not None else (chunks[chunks.index("Sold") + 1], None)


def _report(turn: Turn, name: str, first_day: str, last_day: str) -> str | None:
    if heading(turn) != f"{name} report":
        return link(turn, name if shown(turn, name) else "Reports")
    if f"From {first_day} to {last_day}, " in turn.page.text:
        return None
    return fill(turn, {"From": first_day, "To": last_day}, "Show report")


# ---- orders and customers --------------------------------------------------------------------------------------------
def count(turn: Turn) -> str:
    """Filters the orders and reads how many there are."""
    status, first_day, last_day = turn.asked(r"^How many (\w+) orders are there from (\S+) to (\S+)\?")
    found = _filtered(turn, "Orders", {"Status": status.capitalize(), "From": first_day, "To": last_day})
    return found if isinstance(found, str) else answer(read(turn, r"(\d+) \w+ orders"))


def set_order(turn: Turn) -> str:
    """Filters the orders by day, opens the customer's, and edits it."""
    name, day, status, comment = turn.asked(
        r'^Set the order that (.+) placed on (\S+) to (\w+), with the comment "(.+)"'
    )
    if heading(turn).startswith("Order "):
        wanted = {"Status": status.capitalize(), "Comment": comment}
        return DONE if _saved(turn) else fill(turn, wanted, "Save")
    found = _filtered(turn, "Orders", {"From": day, "To": day})
    return found if isinstance(found, str) else click(first([each for each in found if name in each.trail], name))


def newest_order(turn: Turn) -> str:
    """Opens the customer and the first of the orders."""
    (name,) = turn.asked(r"^Open the newest order of the customer ([^.]+)\.")
    if heading(turn).startswith("Order "):
        return DONE
    step = to_customer(turn, name)
    if step is not None:
        return step
    orders = [each for each in turn.page.tagged("a") if each.text.isdecimal()]
    return click(orders[0]) if orders else answer(NOT_POSSIBLE)


def buyer(turn: Turn) -> str:
    """Filters the orders by day, opens the order and its customer, and reads the number."""
    (day,) = turn.asked(r"of the order of (\S+)\? Answer")
    at = heading(turn)
    if at.startswith("Customer "):
        return answer(control(turn, "Phone").value)
    if at.startswith("Order "):
        return click(nth(turn.page.tagged("a"), MENU, "customer"))
    found = _filtered(turn, "Orders", {"From": day, "To": day})
    if isinstance(found, str):
        return found
    return click(found[0]) if found else answer(NOT_POSSIBLE)


def email(turn: Turn) -> str:
    """Opens the customer and reads the address."""
    (name,) = turn.asked(r"^What is the email address of the customer (.+)\? Answer")
    return to_customer(turn, name) or answer(read(turn, r"Email: (\S+)"))


def edit_customer(turn: Turn) -> str:
    """Opens the customer, edits, saves."""
    name, group, phone = turn.asked(r"^Move the customer (.+) to the group (\w+) and .* to (\S+)\.$")
    step = to_customer(turn, name)
    if step is not None:
        return step
    return DONE if _saved(turn) else fill(turn, {"Phone": phone, "Group": group}, "Save")


def group_size(turn: Turn) -> str:
    """Filters the customers and reads how many there are."""
    group, name = turn.asked(r"^How many customers of the group (\w+) have (\w+) in")
    found = _filtered(turn, "Customers", {"Name or email": name, "Group": group})
    return found if isinstance(found, str) else answer(read(turn, r"(\d+) customers"))


def sign_in(turn: Turn) -> str:
    """Signs in, filters the orders by day, and reads the status."""
    password, day = turn.asked(r"the password (\S+) and .* of the order of (\S+)\.$")
    if heading(turn) == "Sign in":
        return fill(turn, {"User": "admin", "Password": password}, "Sign in")
    found = _filtered(turn, "Orders", {"From": day, "To": day})
    return found if isinstance(found, str) else answer(nth(found, 0, "order").trail[2])


def to_customer(turn: Turn, name: str) -> str | None:
    """The way to a customer's page; an answer if there is none; None on the page."""
    if heading(turn) == f"Customer {name}":
        return None
    found = _filtered(turn, "Customers", {"Name or email": name})
    if isinstance(found, str):
        return found
    return link(turn, name) if shown(turn, name) else answer(NOT_POSSIBLE)


# ---- lists -----------------------------------------------------------------------------------------------------------
def _filtered(turn: Turn, page: str, wanted: dict[str, str]) -> str | list[Element]:
    """The links of a list's rows, once the filter says this; until then the next step."""
    if heading(turn) != page:
        return link(turn, page)
    step = fill(turn, wanted, "Filter")
    if step != link(turn, "Filter") or not _applied(turn):
        return step
    return [each for each in turn.page.tagged("a")[MENU:] if each.text not in {"New product", "Next", "Previous"}]


def _applied(turn: Turn) -> bool:
    return bool(turn.past) and turn.past[-1] == link(turn, "Filter")


def edit_product(turn: Turn, words: str, wanted: dict[str, str]) -> str:
    """Searches for a product, opens it, fills the form in and saves it."""
    if heading(turn).startswith("Product "):
        return DONE if _saved(turn) else fill(turn, wanted, "Save")
    found = _filtered(turn, "Products", {"Name or SKU": words})
    if isinstance(found, str):
        return found
    exact = [each for each in found if words in {each.text, *each.trail}]
    return click(first(exact, words))


def _saved(turn: Turn) -> bool:
    return any(each in turn.page.chunks for each in _SAVED)


SCRIPTS: Mapping[str, Script] = {
    "admin-best": best,
    "admin-buyer": buyer,
    "admin-cheaper": lower_price,
    "admin-count": count,
    "admin-customer": edit_customer,
    "admin-email": email,
    "admin-group": group_size,
    "admin-lowest": lowest,
    "admin-new-product": new_product,
    "admin-order": set_order,
    "admin-order-of": newest_order,
    "admin-price": set_price,
    "admin-purge": purge,
    "admin-rename": rename,
    "admin-restock": restock,
    "admin-review": pending_review,
    "admin-sales": sales,
    "admin-sign-in": sign_in,
    "admin-stock": stock,
    "admin-two-prices": set_two_prices,
}
