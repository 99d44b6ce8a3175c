"""Intent templates of the administration: products, reviews, reports."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from random import Random
from urllib.parse import quote_plus

from webagent_env.arena.admin.site import bestsellers, sales, summary
from webagent_env.arena.intents import OR_NOT, Chapter, Goal, also, answer, not_possible, shows, stops_at
from webagent_env.arena.shop.data import CATEGORIES, MAKERS, slug_of
from webagent_env.arena.shop.tasks import absent_product, products
from webagent_env.arena.site import money
from webagent_env.arena.world import TODAY, World

ADMIN = Chapter("shopping_admin", start=("__SHOPPING_ADMIN__/",))
_PRODUCT = "document.querySelector('#product').dataset.summary"
_REVIEWS = "[...document.querySelectorAll('.review')].map((each) => each.dataset.review).join('; ')"


def product_is(sku: str, text: str) -> dict[str, object]:
    """The rule that a product's form holds this."""
    return shows((f"__SHOPPING_ADMIN__/products/{sku}.html", _PRODUCT, text))


def period(draw: Random) -> tuple[str, str]:
    """Two days, a while apart, of the last year."""
    first = TODAY - timedelta(days=draw.randrange(60, 340))
    return first.isoformat(), (first + timedelta(days=draw.choice((30, 45, 60, 90)))).isoformat()


# ---- products --------------------------------------------------------------------------------------------------------
@ADMIN.intent("admin-stock", "How many of the {{product}} are in stock? Answer with the number. " + OR_NOT)
def stock(world: World, draw: Random) -> Iterator[Goal]:
    """Products, search, read."""
    for each in products(world, draw):
        yield Goal({"product": each["name"]}, answer(str(each["stock"])))
        if draw.random() < 0.2:
            yield Goal({"product": absent_product(world, draw)}, not_possible())


@ADMIN.intent("admin-price", "Set the price of the {{product}} to ${{price}}.")
def set_price(world: World, draw: Random) -> Iterator[Goal]:
    """Products, search, open, type, save."""
    for each in products(world, draw):
        price = draw.randrange(300, 15000, 5)
        after = summary(each["name"], price, each["stock"], online=True)
        yield Goal({"product": each["name"], "price": f"{price / 100:.2f}"}, product_is(each["sku"], after))


@ADMIN.intent(
    "admin-two-prices", "Set the price of the {{one}} to ${{price}} and that of the {{other}} to ${{other_price}}."
)
def set_two_prices(world: World, draw: Random) -> Iterator[Goal]:
    """The same, twice."""
    for _ in range(80):
        values: dict[str, str] = {}
        rules = []
        for each, (name, field) in zip(
            products(world, draw), (("one", "price"), ("other", "other_price")), strict=False
        ):
            price = draw.randrange(300, 15000, 5)
            values |= {name: each["name"], field: f"{price / 100:.2f}"}
            rules.append(product_is(each["sku"], summary(each["name"], price, each["stock"], online=True)))
        yield Goal(values, also(*rules))


@ADMIN.intent("admin-cheaper", "Lower the price of the {{product}} by {{dollars}} dollars.", held_out=True)
def lower_price(world: World, draw: Random) -> Iterator[Goal]:
    """Products, search, open, read, type, save."""
    for each in products(world, draw, "price > 1000"):
        dollars = draw.randrange(1, 9)
        after = summary(each["name"], each["price"] - 100 * dollars, each["stock"], online=True)
        yield Goal({"product": each["name"], "dollars": str(dollars)}, product_is(each["sku"], after))


@ADMIN.intent("admin-restock", "Set the stock of the product with the SKU {{sku}} to {{stock}}, and take it offline.")
def restock(world: World, draw: Random) -> Iterator[Goal]:
    """Products, search by number, open, type, choose, save."""
    for each in products(world, draw):
        number = draw.randrange(60, 400)
        after = summary(each["name"], each["price"], number, online=False)
        yield Goal({"sku": each["sku"], "stock": str(number)}, product_is(each["sku"], after))


@ADMIN.intent("admin-rename", "Rename the {{product}} to {{name}}.")
def rename(world: World, draw: Random) -> Iterator[Goal]:
    """Products, search, open, type, save."""
    for each in products(world, draw):
        name = f"{each['name']} {draw.choice(('Classic', 'Deluxe', 'Junior', 'Light', 'Mini', 'Plus'))}"
        after = summary(name, each["price"], each["stock"], online=True)
        yield Goal({"product": each["name"], "name": name}, product_is(each["sku"], after))


@ADMIN.intent(
    "admin-new-product",
    "Create the product {{name}} in the category {{category}}: SKU {{sku}}, price ${{price}}, stock {{stock}}.",
)
def new_product(world: World, draw: Random) -> Iterator[Goal]:
    """Products, new, five fields, create."""
    taken = {row["slug"] for row in world.data("shop").all("SELECT slug FROM product")}
    for _ in range(80):
        category = draw.choice(list(CATEGORIES))
        name = (
            f"{draw.choice(MAKERS)} {draw.choice(CATEGORIES[category][0])} {draw.choice(('Set', 'Pro', 'Kit', 'Duo'))}"
        )
        sku, price, number = f"N{draw.randrange(1000, 9999)}", draw.randrange(300, 15000, 5), draw.randrange(1, 200)
        if slug_of(name) in taken:
            continue
        values = {"name": name, "category": category, "sku": sku, "price": f"{price / 100:.2f}", "stock": str(number)}
        yield Goal(values, product_is(sku, summary(name, price, number, online=True)))


@ADMIN.intent(
    "admin-lowest", "Open the product of the category {{category}} with the {{place}} lowest {{what}}, to edit it."
)
def lowest(world: World, draw: Random) -> Iterator[Goal]:
    """Products, filter, sort, open."""
    for category in CATEGORIES:
        for what in ("stock", "price"):
            query = f"SELECT sku, {what} FROM product WHERE category = ? ORDER BY {what}, sku"  # noqa: S608
            rows = world.data("shop").all(query, category)
            for index, place in enumerate(("", "second", "third", "fourth", "fifth", "sixth", "seventh")):
                around = [row[what] for row in rows[max(0, index - 1) : index + 2]]
                if place and len(set(around)) == len(around):
                    url = f"__SHOPPING_ADMIN__/products/{rows[index]['sku']}.html"
                    yield Goal({"category": category, "place": place, "what": what}, stops_at(url))


# ---- reviews ---------------------------------------------------------------------------------------------------------
@ADMIN.intent("admin-review", "{{what}} the pending review of the {{product}} by {{nickname}}.")
def pending_review(world: World, draw: Random) -> Iterator[Goal]:
    """Reviews, further pages, approve or delete."""
    data = world.data("shop")
    pending = data.all("SELECT review.*, name FROM review JOIN product USING (slug) WHERE status = 'Pending'")
    draw.shuffle(pending)
    for one in pending:
        about = data.all("SELECT * FROM review WHERE slug = ? ORDER BY id", one["slug"])
        for what in ("Approve", "Delete"):
            after = [
                f"{each['nickname']}: {each['stars']}, {'Approved' if each['id'] == one['id'] else each['status']}"
                for each in about
                if what == "Approve" or each["id"] != one["id"]
            ]
            url = f"__SHOPPING_ADMIN__/reviews?q={quote_plus(one['name'])}"
            values = {"what": what, "product": one["name"], "nickname": one["nickname"]}
            yield Goal(values, shows((url, _REVIEWS, "; ".join(after))))


@ADMIN.intent("admin-purge", "Delete every review that gives the {{product}} {{stars}} stars or fewer.")
def purge(world: World, draw: Random) -> Iterator[Goal]:
    """Reviews, the product's, delete one after another."""
    data = world.data("shop")
    for each in products(world, draw):
        about = data.all("SELECT * FROM review WHERE slug = ? ORDER BY id", each["slug"])
        for most in (1, 2, 3):
            kept = [row for row in about if row["stars"] > most]
            if len(kept) < len(about):
                after = "; ".join(f"{row['nickname']}: {row['stars']}, {row['status']}" for row in kept)
                url = f"__SHOPPING_ADMIN__/reviews?q={quote_plus(each['name'])}"
                yield Goal({"product": each["name"], "stars": str(most)}, shows((url, _REVIEWS, after)))


# ---- reports ---------------------------------------------------------------------------------------------------------
@ADMIN.intent("admin-sales", "What were the sales from {{first}} to {{last}}? Answer with the amount in the report.")
def sales_between(world: World, draw: Random) -> Iterator[Goal]:
    """Reports, sales, two dates, show, read."""
    for _ in range(100):
        first, last = period(draw)
        amount = money(sales(world.data("shop"), first, last)[1])
        yield Goal({"first": first, "last": last}, answer(amount))


@ADMIN.intent("admin-best", "Which product was sold most from {{first}} to {{last}}? Answer with its name.")
def best_between(world: World, draw: Random) -> Iterator[Goal]:
    """Reports, bestsellers, two dates, show, read."""
    for _ in range(200):
        first, last = period(draw)
        rows = bestsellers(world.data("shop"), first, last)
        if len(rows) > 1 and rows[0]["sold"] > rows[1]["sold"]:
            yield Goal({"first": first, "last": last}, answer(rows[0]["name"]))
