"""The shop's pages and forms."""

from __future__ import annotations

from sqlite3 import Row

from aiohttp import web

from webagent_env.arena.shop.data import CATEGORIES, SHOPPER
from webagent_env.arena.site import Problem, Site, Visit, paged, whole
from webagent_env.arena.world import Data

SORTS = {
    "Position": "rowid",
    "Name": "name",
    "Price: low to high": "price, name",
    "Price: high to low": "price DESC, name",
}
_PAGE = 6


def _frame(visit: Visit) -> dict[str, object]:
    return {"in_cart": visit.data.value("SELECT coalesce(sum(quantity), 0) FROM cart")}


SITE = Site(
    "shopping", "__SHOPPING__", "/shop", "shop", "Corner Shop", login="/login", first_user=SHOPPER, frame=_frame
)


@SITE.page("/")
def home(visit: Visit) -> web.Response:
    """The categories."""
    return visit.show("home", categories=tuple(CATEGORIES))


# ---- finding things --------------------------------------------------------------------------------------------------
@SITE.page("/category/{category}")
def category(visit: Visit) -> web.Response:
    """One category's products."""
    name = visit.part("category").capitalize()
    return _list(visit, name, "category = ?", name)


@SITE.page("/search")
def search(visit: Visit) -> web.Response:
    """Products whose name has all the words."""
    words = visit.asked("q")
    wanted = [f"%{word}%" for word in words.split()]
    where = " AND ".join("name LIKE ?" for _ in wanted) or "0"
    return _list(visit, f'Results for "{words}"', where, *wanted, words=words)


def _list(visit: Visit, heading: str, where: str, *values: object, words: str | None = None) -> web.Response:
    sort = visit.asked("sort")
    order = SORTS.get(sort, SORTS["Position"])
    most = visit.asked("most")
    dollars = whole(most)
    limit = 10**9 if dollars is None else dollars * 100
    found = visit.data.all(
        f"SELECT * FROM product WHERE enabled AND price <= ? AND {where} ORDER BY {order}",  # noqa: S608 - our own text
        limit,
        *values,
    )
    return visit.show(
        "list", heading=heading, words=words, sorts=tuple(SORTS), sort=sort, most=most, **paged(visit, found, _PAGE)
    )


@SITE.page("/product/{slug}.html")
def product(visit: Visit) -> web.Response:
    """One product."""
    slug = visit.part("slug")
    found = visit.data.one("SELECT * FROM product WHERE slug = ? AND enabled", slug)
    if found is None:
        raise web.HTTPNotFound(text="There is no such product.")
    colours = [row["colour"] for row in visit.data.all("SELECT colour FROM choice WHERE slug = ?", slug)]
    reviews = visit.data.value("SELECT count(*) FROM review WHERE slug = ? AND status = 'Approved'", slug)
    return visit.show("product", product=found, colours=colours, reviews=reviews)


@SITE.page("/product/{slug}.html/reviews")
def reviews(visit: Visit) -> web.Response:
    """What was written about a product, the newest first."""
    slug = visit.part("slug")
    found = visit.data.all(
        "SELECT * FROM review WHERE slug = ? AND status = 'Approved' ORDER BY written DESC, id DESC", slug
    )
    name = visit.data.value("SELECT name FROM product WHERE slug = ?", slug)
    return visit.show("reviews", name=name, slug=slug, **paged(visit, found, _PAGE))


# ---- the cart --------------------------------------------------------------------------------------------------------
@SITE.action("/product/{slug}.html/cart")
def add(visit: Visit) -> web.Response:
    """Puts a product into the cart."""
    slug, data = visit.part("slug"), visit.data
    stock = data.value("SELECT stock FROM product WHERE slug = ?", slug) or 0
    quantity = visit.given_number("quantity", "Quantity", 1, 99)
    if quantity > stock:
        raise Problem(f"Only {stock} are in stock.")
    colour = ""
    if data.value("SELECT count(*) FROM choice WHERE slug = ?", slug):
        colour = visit.given("colour", "Colour")
    put_into_cart(data, slug, colour, quantity)
    return visit.go("/cart", "Added to your cart.")


@SITE.page("/cart")
def cart(visit: Visit) -> web.Response:
    """What is in the cart."""
    lines, total = in_cart(visit.data)
    return visit.show("cart", lines=lines, total=total)


@SITE.action("/cart/change")
def change(visit: Visit) -> web.Response:
    """Changes how many of a product are in the cart."""
    quantity = visit.given_number("quantity", "Quantity", 1, 99)
    where = (visit.hidden("slug"), visit.hidden("colour"))
    visit.data.do("UPDATE cart SET quantity = ? WHERE slug = ? AND colour = ?", quantity, *where)
    return visit.go("/cart", "Cart updated.")


@SITE.action("/cart/remove")
def remove(visit: Visit) -> web.Response:
    """Takes a product out of the cart."""
    visit.data.do("DELETE FROM cart WHERE slug = ? AND colour = ?", visit.hidden("slug"), visit.hidden("colour"))
    return visit.go("/cart", "Removed.")


def in_cart(data: Data) -> tuple[list[Row], int]:
    """The cart's lines, and what they cost."""
    lines = data.all("SELECT cart.*, name, price FROM cart JOIN product USING (slug) ORDER BY cart.rowid")
    return lines, sum(line["price"] * line["quantity"] for line in lines)


def described(line: Row) -> str:
    """A line of a cart or an order, as rules read it: "2 x Name (Colour)"."""
    return f"{line['quantity']} x {line['name']}" + (f" ({line['colour']})" if line["colour"] else "")


def put_into_cart(data: Data, slug: str, colour: str, quantity: int) -> None:
    """Adds to what is there already."""
    data.do(
        "INSERT INTO cart VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET quantity = quantity + excluded.quantity",
        slug,
        colour,
        quantity,
    )
