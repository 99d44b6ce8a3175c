"""The shop's pages for its customers: signing in, checkout, orders, wish list, addresses, writing reviews."""

from __future__ import annotations

from sqlite3 import Row

from aiohttp import web

from webagent_env.arena.shop.data import PASSWORD, PAYMENTS, SHIPPING, STATUSES, order_number
from webagent_env.arena.shop.site import SITE, described, in_cart, put_into_cart
from webagent_env.arena.site import Problem, Visit, paged
from webagent_env.arena.world import TODAY, Data

_PAGE = 6


# ---- signing in ------------------------------------------------------------------------------------------------------
SITE.let_sign_in(
    lambda visit, email: visit.data.value("SELECT email FROM customer WHERE email = ?", email.lower()),
    PASSWORD,
    by="email",
    label="Email",
    home="/account",
)


@SITE.page("/account", private=True)
def account(visit: Visit) -> web.Response:
    """Who one is, and what there is of one's own."""
    return visit.show("account", customer=visit.data.one("SELECT * FROM customer WHERE email = ?", visit.user))


@SITE.action("/account", private=True)
def change_account(visit: Visit) -> web.Response:
    """Changes one's phone number."""
    visit.data.do("UPDATE customer SET phone = ? WHERE email = ?", visit.given("phone", "Phone"), visit.user)
    return visit.go("/account", "Your account is updated.")


# ---- checkout --------------------------------------------------------------------------------------------------------
@SITE.page("/checkout", private=True)
def checkout(visit: Visit) -> web.Response:
    """Where to, how, and how to pay."""
    lines, total = in_cart(visit.data)
    if not lines:
        return visit.go("/cart", "There is nothing to check out.")
    customer = visit.data.one("SELECT * FROM customer WHERE email = ?", visit.user)
    return visit.show("checkout", customer=customer, shipping=SHIPPING, payments=PAYMENTS, total=total)


@SITE.action("/checkout", private=True)
def place(visit: Visit) -> web.Response:
    """Places the order."""
    data = visit.data
    lines, _ = in_cart(data)
    shipping, payment = visit.given("shipping", "Shipping"), visit.given("payment", "Payment")
    if not lines or shipping not in SHIPPING or payment not in PAYMENTS:
        raise Problem("Choose how to ship and how to pay.")
    number = next_number(data)
    street, town = visit.given("street", "Street"), visit.given("town", "Town")
    data.do(
        "INSERT INTO purchase VALUES (?, ?, ?, 'Pending', ?, ?, ?, ?, '')",
        *(number, visit.user, TODAY.isoformat(), shipping, payment, street, town),
    )
    for line in lines:
        what = line["slug"], line["name"], line["colour"], line["price"], line["quantity"]
        data.do("INSERT INTO line VALUES (?, ?, ?, ?, ?, ?)", number, *what)
        data.do("UPDATE product SET stock = max(0, stock - ?) WHERE slug = ?", line["quantity"], line["slug"])
    data.do("DELETE FROM cart")
    return visit.go(f"/orders/{number}.html", "Thank you for your order.")


def next_number(data: Data) -> str:
    """The number of the next order."""
    return order_number(data.value("SELECT count(*) FROM purchase") + 1)


# ---- orders ----------------------------------------------------------------------------------------------------------
@SITE.page("/orders", private=True)
def orders(visit: Visit) -> web.Response:
    """One's orders, the newest first."""
    status = visit.asked("status")
    found = visit.data.all(
        "SELECT * FROM purchase WHERE email = ? AND (? = '' OR status = ?) ORDER BY number DESC",
        *(visit.user, status, status),
    )
    return visit.show("orders", statuses=STATUSES, status=status, **paged(visit, found, _PAGE))


@SITE.page("/orders/{number}.html", private=True)
def order(visit: Visit) -> web.Response:
    """One order."""
    one = _own_order(visit)
    lines = lines_of(visit.data, one["number"])
    goods = sum(line["price"] * line["quantity"] for line in lines)
    shipping = SHIPPING[one["shipping"]]
    summary = summary_of(one, lines)
    return visit.show(
        "order", order=one, lines=lines, goods=goods, shipping=shipping, total=goods + shipping, summary=summary
    )


@SITE.action("/orders/{number}.html/reorder", private=True)
def reorder(visit: Visit) -> web.Response:
    """Puts what was ordered into the cart again."""
    for line in lines_of(visit.data, _own_order(visit)["number"]):
        put_into_cart(visit.data, line["slug"], line["colour"], line["quantity"])
    return visit.go("/cart", "Everything of that order is in your cart.")


@SITE.action("/orders/{number}.html/cancel", private=True)
def cancel(visit: Visit) -> web.Response:
    """Cancels an order that has not been sent."""
    one = _own_order(visit)
    if one["status"] not in {"Pending", "Processing"}:
        raise Problem("This order can no longer be canceled.")
    visit.data.do("UPDATE purchase SET status = 'Canceled' WHERE number = ?", one["number"])
    return visit.go(f"/orders/{one['number']}.html", "The order is canceled.")


def lines_of(data: Data, number: str) -> list[Row]:
    """What was ordered."""
    return data.all("SELECT * FROM line WHERE number = ? ORDER BY rowid", number)


def summary_of(one: Row, lines: list[Row]) -> str:
    """An order as rules read it."""
    goods = "; ".join(described(line) for line in lines)
    return f"{goods} | {one['shipping']} | {one['payment']} | {one['street']}, {one['town']}"


def _own_order(visit: Visit) -> Row:
    found = visit.data.one("SELECT * FROM purchase WHERE number = ? AND email = ?", visit.part("number"), visit.user)
    if found is None:
        raise web.HTTPNotFound(text="You have no such order.")
    return found


# ---- wish list, addresses, reviews -----------------------------------------------------------------------------------
@SITE.page("/wishes", private=True)
def wishes(visit: Visit) -> web.Response:
    """The wish list."""
    return visit.show(
        "wishes", items=visit.data.all("SELECT product.* FROM wish JOIN product USING (slug) ORDER BY name")
    )


@SITE.action("/product/{slug}.html/wish", private=True)
def wish(visit: Visit) -> web.Response:
    """Puts a product on the wish list."""
    visit.data.do("INSERT OR IGNORE INTO wish VALUES (?)", visit.part("slug"))
    return visit.go("/wishes", "Added to your wish list.")


@SITE.action("/wishes/remove", private=True)
def unwish(visit: Visit) -> web.Response:
    """Takes a product off the wish list."""
    visit.data.do("DELETE FROM wish WHERE slug = ?", visit.hidden("slug"))
    return visit.go("/wishes", "Removed.")


@SITE.page("/addresses", private=True)
def addresses(visit: Visit) -> web.Response:
    """The address book."""
    return visit.show("addresses", items=visit.data.all("SELECT * FROM address ORDER BY id"))


@SITE.action("/addresses", private=True)
def add_address(visit: Visit) -> web.Response:
    """Adds an address."""
    what = visit.given("name", "Name"), visit.given("street", "Street"), visit.given("town", "Town")
    visit.data.do("INSERT INTO address (name, street, town) VALUES (?, ?, ?)", *what)
    return visit.go("/addresses", "The address is saved.")


@SITE.page("/product/{slug}.html/reviews/new", private=True)
def new_review(visit: Visit) -> web.Response:
    """The form to write a review."""
    slug = visit.part("slug")
    return visit.show("review", slug=slug, name=visit.data.value("SELECT name FROM product WHERE slug = ?", slug))


@SITE.action("/product/{slug}.html/reviews/new", private=True)
def write_review(visit: Visit) -> web.Response:
    """Takes a review in; the shop shows it at once where its writer has an account."""
    slug, stars = visit.part("slug"), visit.given("stars", "Rating")
    if stars not in {"1", "2", "3", "4", "5"}:
        raise Problem("Rating is required.")
    visit.data.do(
        "INSERT INTO review (slug, nickname, stars, title, text, written) VALUES (?, ?, ?, ?, ?, ?)",
        *(slug, visit.user.partition("@")[0], int(stars)),
        *(visit.given("title", "Title"), visit.given("text", "Review"), TODAY.isoformat()),
    )
    return visit.go(f"/product/{slug}.html/reviews", "Thank you for your review.")
