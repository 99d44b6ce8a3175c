"""The administration's pages and forms."""

from __future__ import annotations

import re
from datetime import date
from sqlite3 import Row

from aiohttp import web

from webagent_env.arena.shop.account import lines_of
from webagent_env.arena.shop.data import CATEGORIES, STATUSES, slug_of
from webagent_env.arena.site import Problem, Site, Visit, money, paged
from webagent_env.arena.world import Data

SITE = Site("shopping_admin", "__SHOPPING_ADMIN__", "/admin", "shop", "Shop Admin", login="/login", first_user="admin")
GROUPS = ("General", "Retailer", "Wholesale")
ADMIN_PASSWORD = "blue-door-3"  # noqa: S105 - no secret
_PAGE = 7


# ---- signing in ------------------------------------------------------------------------------------------------------
SITE.let_sign_in(lambda _, name: name if name == "admin" else None, ADMIN_PASSWORD, label="User")


@SITE.page("/", private=True)
def dashboard(visit: Visit) -> web.Response:
    """The newest orders, and what waits to be done."""
    newest = visit.data.all("SELECT * FROM purchase JOIN customer USING (email) ORDER BY number DESC LIMIT 5")
    pending = visit.data.value("SELECT count(*) FROM review WHERE status = 'Pending'")
    return visit.show("dashboard", newest=newest, pending=pending)


# ---- products --------------------------------------------------------------------------------------------------------
@SITE.page("/products", private=True)
def products(visit: Visit) -> web.Response:
    """All products, or those that a filter leaves."""
    words, category, sort = visit.asked("q"), visit.asked("category"), visit.asked("sort")
    order = {"Stock": "stock, sku", "Price": "price, sku"}.get(sort, "sku")
    found = visit.data.all(
        "SELECT * FROM product WHERE (name LIKE ? OR sku = ?) AND (? = '' OR category = ?)"  # noqa: S608 - our own text
        f" ORDER BY {order}",
        *(f"%{words}%", words.upper(), category, category),
    )
    shown = {"words": words, "category": category, "sort": sort, "categories": tuple(CATEGORIES)}
    return visit.show("products", sorts=("SKU", "Stock", "Price"), **shown, **paged(visit, found, _PAGE))


@SITE.page("/products/new.html", private=True)
def new_product(visit: Visit) -> web.Response:
    """The form for a new product."""
    return visit.show("new_product", categories=tuple(CATEGORIES))


@SITE.action("/products/new.html", private=True)
def create_product(visit: Visit) -> web.Response:
    """Adds a product."""
    name, sku = visit.given("name", "Name"), visit.given("sku", "SKU").upper()
    category = visit.given("category", "Category")
    if re.fullmatch(r"[A-Z0-9-]{2,20}", sku) is None or category not in CATEGORIES:
        raise Problem("A SKU has letters, digits and dashes.")
    if visit.data.one("SELECT 1 FROM product WHERE sku = ? OR slug = ?", sku, slug_of(name)):
        raise Problem("There is a product of that SKU or name.")
    visit.data.do(
        "INSERT INTO product VALUES (?, ?, ?, ?, ?, ?, 1, 'Steel', 500)",
        *(sku, slug_of(name), name, category, _price(visit), visit.given_number("stock", "Stock", 0, 9999)),
    )
    return visit.go(f"/products/{sku}.html", "The product is created.")


@SITE.page("/products/{sku}.html", private=True)
def product(visit: Visit) -> web.Response:
    """One product, to be edited."""
    one = visit.data.one("SELECT * FROM product WHERE sku = ?", visit.part("sku"))
    if one is None:
        raise web.HTTPNotFound(text="There is no such product.")
    return visit.show("product", product=one, summary=product_summary(one))


@SITE.action("/products/{sku}.html", private=True)
def save_product(visit: Visit) -> web.Response:
    """Saves what was edited."""
    visit.data.do(
        "UPDATE product SET name = ?, price = ?, stock = ?, enabled = ? WHERE sku = ?",
        *(visit.given("name", "Name"), _price(visit), visit.given_number("stock", "Stock", 0, 9999)),
        *(visit.form.get("online") == "Yes", visit.part("sku")),
    )
    return visit.go(f"/products/{visit.part('sku')}.html", "The product is saved.")


def product_summary(one: Row) -> str:
    """A product as rules read it."""
    return summary(one["name"], one["price"], one["stock"], online=bool(one["enabled"]))


def summary(name: str, price: int, stock: int, *, online: bool) -> str:
    """The same, of its parts."""
    return f"{name} | {money(price)} | {stock} | {'online' if online else 'offline'}"


def _price(visit: Visit) -> int:
    text = visit.given("price", "Price")
    if re.fullmatch(r"\d{1,5}(\.\d\d)?", text, re.ASCII) is None:
        raise Problem("Price must be an amount such as 12.50.")
    return round(float(text) * 100)


# ---- orders ----------------------------------------------------------------------------------------------------------
@SITE.page("/orders", private=True)
def orders(visit: Visit) -> web.Response:
    """All orders, or those that a filter leaves, the newest first."""
    status, first, last = visit.asked("status"), _date(visit, "first"), _date(visit, "last")
    found = visit.data.all(
        "SELECT * FROM purchase JOIN customer USING (email) WHERE (? = '' OR status = ?)"
        " AND placed BETWEEN ? AND ? ORDER BY number DESC",
        *(status, status, first or "0", last or "9"),
    )
    return visit.show("orders", statuses=STATUSES, status=status, first=first, last=last, **paged(visit, found, _PAGE))


@SITE.page("/orders/{number}.html", private=True)
def order(visit: Visit) -> web.Response:
    """One order."""
    one = visit.data.one("SELECT * FROM purchase WHERE number = ?", visit.part("number"))
    if one is None:
        raise web.HTTPNotFound(text="There is no such order.")
    customer = visit.data.one("SELECT * FROM customer WHERE email = ?", one["email"])
    lines = lines_of(visit.data, one["number"])
    return visit.show("order", order=one, customer=customer, lines=lines, statuses=STATUSES)


@SITE.action("/orders/{number}.html", private=True)
def save_order(visit: Visit) -> web.Response:
    """Changes an order's status, with a comment."""
    status = visit.given("status", "Status")
    if status not in STATUSES:
        raise Problem("There is no such status.")
    number = visit.part("number")
    visit.data.do(
        "UPDATE purchase SET status = ?, note = ? WHERE number = ?", status, visit.form.get("note", ""), number
    )
    return visit.go(f"/orders/{number}.html", "The order is saved.")


# ---- customers -------------------------------------------------------------------------------------------------------
@SITE.page("/customers", private=True)
def customers(visit: Visit) -> web.Response:
    """All customers, or those that a filter leaves."""
    words, group = visit.asked("q"), visit.asked("group")
    found = visit.data.all(
        "SELECT * FROM customer WHERE (name LIKE ? OR email LIKE ?) AND (? = '' OR grouped = ?) ORDER BY name",
        *(f"%{words}%", f"%{words}%", group, group),
    )
    return visit.show("customers", words=words, group=group, groups=GROUPS, **paged(visit, found, _PAGE))


@SITE.page("/customers/{email}.html", private=True)
def customer(visit: Visit) -> web.Response:
    """One customer."""
    one = visit.data.one("SELECT * FROM customer WHERE email = ?", visit.part("email"))
    if one is None:
        raise web.HTTPNotFound(text="There is no such customer.")
    placed = visit.data.all("SELECT * FROM purchase WHERE email = ? ORDER BY number DESC LIMIT 5", one["email"])
    return visit.show("customer", customer=one, groups=GROUPS, placed=placed)


@SITE.action("/customers/{email}.html", private=True)
def save_customer(visit: Visit) -> web.Response:
    """Saves what was edited."""
    group = visit.given("group", "Group")
    if group not in GROUPS:
        raise Problem("There is no such group.")
    email = visit.part("email")
    visit.data.do(
        "UPDATE customer SET phone = ?, grouped = ? WHERE email = ?", visit.given("phone", "Phone"), group, email
    )
    return visit.go(f"/customers/{email}.html", "The customer is saved.")


# ---- reviews ---------------------------------------------------------------------------------------------------------
@SITE.page("/reviews", private=True)
def reviews(visit: Visit) -> web.Response:
    """Reviews that wait for approval, or those of a product."""
    words = visit.asked("q")
    found = visit.data.all(
        "SELECT review.*, name FROM review JOIN product USING (slug)"
        " WHERE (? = '' AND status = 'Pending') OR (? <> '' AND name = ?) ORDER BY id",
        *(words, words, words),
    )
    return visit.show("reviews", words=words, **paged(visit, found, _PAGE))


@SITE.action("/reviews/{id}/{what}", private=True)
def judge_review(visit: Visit) -> web.Response:
    """Approves a review or deletes it."""
    number = visit.part("id")
    if visit.part("what") == "approve":
        visit.data.do("UPDATE review SET status = 'Approved' WHERE id = ?", number)
        return visit.go("/reviews", "The review is approved.")
    visit.data.do("DELETE FROM review WHERE id = ?", number)
    return visit.go("/reviews", "The review is deleted.")


# ---- reports ---------------------------------------------------------------------------------------------------------
@SITE.page("/reports/sales", private=True)
def sales_report(visit: Visit) -> web.Response:
    """How much was sold between two days."""
    first, last = _date(visit, "first"), _date(visit, "last")
    count, total = sales(visit.data, first, last) if first and last else (0, 0)
    return visit.show("sales", first=first, last=last, count=count, total=total)


@SITE.page("/reports/bestsellers", private=True)
def best_report(visit: Visit) -> web.Response:
    """What was sold most between two days."""
    first, last = _date(visit, "first"), _date(visit, "last")
    return visit.show(
        "best", first=first, last=last, rows=bestsellers(visit.data, first, last) if first and last else []
    )


def sales(data: Data, first: str, last: str) -> tuple[int, int]:
    """Orders between two days that were not canceled, and what their goods cost."""
    row = data.one(
        "SELECT count(DISTINCT number) AS count, coalesce(sum(price * quantity), 0) AS total FROM purchase"
        " JOIN line USING (number) WHERE status <> 'Canceled' AND placed BETWEEN ? AND ?",
        *(first, last),
    )
    assert row is not None
    return row["count"], row["total"]


def bestsellers(data: Data, first: str, last: str) -> list[Row]:
    """Products by how many were sold between two days, in orders that were not canceled."""
    return data.all(
        "SELECT line.name, sum(quantity) AS sold FROM purchase JOIN line USING (number) WHERE status <> 'Canceled'"
        " AND placed BETWEEN ? AND ? GROUP BY line.name ORDER BY sold DESC, line.name LIMIT 5",
        *(first, last),
    )


def _date(visit: Visit, name: str) -> str:
    try:
        return date.fromisoformat(visit.asked(name)).isoformat()
    except ValueError:
        return ""
