"""Intent templates of the shop: finding products, and the cart."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from sqlite3 import Row

from webagent_env.arena.intents import OR_NOT, Chapter, Goal, answer, not_possible, shows, stops_at
from webagent_env.arena.shop.data import CATEGORIES, MAKERS
from webagent_env.arena.shop.site import described, in_cart
from webagent_env.arena.site import money
from webagent_env.arena.world import World

SHOP = Chapter("shopping", start=("__SHOPPING__/",))
_LINES = "[...document.querySelectorAll('.line')].map((each) => each.dataset.line).join('; ')"


def products(world: World, draw: Random, where: str = "1") -> list[Row]:
    """The products of which a condition holds, in random order."""
    found = world.data("shop").all(f"SELECT * FROM product WHERE {where} ORDER BY slug")  # noqa: S608 - our own text
    draw.shuffle(found)
    return found


def absent_product(world: World, draw: Random) -> str:
    """The name of a product that is not sold."""
    sold = {row["name"] for row in world.data("shop").all("SELECT name FROM product")}
    while True:
        kinds = draw.choice(list(CATEGORIES.values()))[0]
        name = f"{draw.choice(MAKERS)} {draw.choice(kinds)}"
        if name not in sold:
            return name


def cart_of(world: World) -> list[str]:
    """What is in the cart at the start, line by line."""
    return [described(line) for line in in_cart(world.data("shop"))[0]]


def cart_is(lines: list[str]) -> dict[str, object]:
    """The rule that these lines are in the cart, in this order and no others."""
    return shows(("__SHOPPING__/cart", _LINES, "; ".join(lines)))


# ---- finding products ------------------------------------------------------------------------------------------------
@SHOP.intent("shop-price", "What does the {{product}} cost in the shop? Answer with the price. " + OR_NOT)
def price(world: World, draw: Random) -> Iterator[Goal]:
    """Search and read."""
    for each in products(world, draw):
        yield Goal({"product": each["name"]}, answer(money(each["price"])))
        if draw.random() < 0.25:
            yield Goal({"product": absent_product(world, draw)}, not_possible())


@SHOP.intent("shop-weight", "How much does the {{product}} weigh, in grams? Answer with the number. " + OR_NOT)
def weight(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open and read."""
    for each in products(world, draw):
        yield Goal({"product": each["name"]}, answer(str(each["weight"])))
        if draw.random() < 0.2:
            yield Goal({"product": absent_product(world, draw)}, not_possible())


@SHOP.intent(
    "shop-open",
    "Open the page of the {{order}} product in the category {{category}} that costs no more than ${{most}}.",
)
def extreme(world: World, draw: Random) -> Iterator[Goal]:
    """Category, sort, bound, open."""
    for _ in range(100):
        category, most = draw.choice(list(CATEGORIES)), draw.randrange(20, 90, 5)
        order, direction = draw.choice((("cheapest", "price"), ("most expensive", "price DESC")))
        query = f"SELECT slug, price FROM product WHERE category = ? AND price <= ? ORDER BY {direction}"  # noqa: S608
        rows = world.data("shop").all(query, category, most * 100)
        if len(rows) > 1 and rows[0]["price"] != rows[1]["price"]:
            values = {"order": order, "category": category, "most": str(most)}
            yield Goal(values, stops_at(f"__SHOPPING__/product/{rows[0]['slug']}.html"))


@SHOP.intent(
    "shop-count", "How many products in the category {{category}} cost no more than ${{most}}? Answer with the number."
)
def count(world: World, draw: Random) -> Iterator[Goal]:
    """Category, bound, read."""
    for _ in range(100):
        category, most = draw.choice(list(CATEGORIES)), draw.randrange(15, 100, 5)
        query = "SELECT count(*) FROM product WHERE category = ? AND price <= ?"
        number = world.data("shop").value(query, category, most * 100)
        yield Goal({"category": category, "most": str(most)}, answer(str(number)))


@SHOP.intent("shop-cheaper", "Which is cheaper, the {{one}} or the {{other}}? Answer with its name.")
def cheaper(world: World, draw: Random) -> Iterator[Goal]:
    """Search twice, and compare."""
    for _ in range(100):
        one, other = products(world, draw)[:2]
        if one["price"] != other["price"]:
            name = min(one, other, key=lambda each: each["price"])["name"]
            yield Goal({"one": one["name"], "other": other["name"]}, answer(name))


@SHOP.intent("shop-reviewer", "Who gave the {{product}} {{stars}} stars in a review? Answer with the name. " + OR_NOT)
def reviewer(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, look at the reviews."""
    query = "SELECT nickname, stars FROM review WHERE slug = ? AND status = 'Approved'"
    for each in products(world, draw):
        given = world.data("shop").all(query, each["slug"])
        for stars in (1, 2, 3, 4, 5):
            names = [row["nickname"] for row in given if row["stars"] == stars]
            values = {"product": each["name"], "stars": str(stars)}
            if len(names) == 1:
                yield Goal(values, answer(names[0]))
            elif not names and draw.random() < 0.12:
                yield Goal(values, not_possible())


# ---- the cart --------------------------------------------------------------------------------------------------------
@SHOP.intent("shop-cart", "Put {{quantity}} of the {{product}} into the cart, in {{colour}}.")
def into_cart(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, choose, type, add."""
    before = cart_of(world)
    for each in products(world, draw, "stock > 4 AND category IN ('Clothing', 'Sports')"):
        for row in world.data("shop").all("SELECT colour FROM choice WHERE slug = ?", each["slug"]):
            quantity = draw.randrange(2, 5)
            line = f"{quantity} x {each['name']} ({row['colour']})"
            values = {"quantity": str(quantity), "product": each["name"], "colour": row["colour"].lower()}
            yield Goal(values, cart_is([*before, line]))


@SHOP.intent(
    "shop-cart-two",
    "Put the {{order}} product of {{category}} that costs no more than ${{most}} into the cart, twice.",
    held_out=True,
)
def cheapest_twice(world: World, draw: Random) -> Iterator[Goal]:
    """Category, sort, bound, open, type, add."""
    before, data = cart_of(world), world.data("shop")
    held = {line["slug"] for line in in_cart(data)[0]}
    for _ in range(150):
        category, most = draw.choice(("Kitchen", "Garden", "Office", "Toys")), draw.randrange(15, 90, 5)
        order, direction = draw.choice((("cheapest", "price"), ("most expensive", "price DESC")))
        query = f"SELECT * FROM product WHERE category = ? AND price <= ? ORDER BY {direction}"  # noqa: S608
        rows = data.all(query, category, most * 100)
        if len(rows) > 1 and rows[0]["price"] != rows[1]["price"] and rows[0]["stock"] and rows[0]["slug"] not in held:
            values = {"order": order, "category": category, "most": str(most)}
            yield Goal(values, cart_is([*before, f"2 x {rows[0]['name']}"]))


@SHOP.intent("shop-cart-change", "Change the cart: {{quantity}} of the {{product}}, and no {{other}}.")
def change_cart(world: World, draw: Random) -> Iterator[Goal]:
    """Open the cart, change one line, remove another."""
    lines = in_cart(world.data("shop"))[0]
    for _ in range(100):
        kept, other = draw.sample(lines, 2)
        quantity = draw.randrange(4, 30)
        after = [
            f"{quantity} x {line['name']}" if line is kept else described(line) for line in lines if line is not other
        ]
        values = {"quantity": str(quantity), "product": kept["name"], "other": other["name"]}
        yield Goal(values, cart_is(after))
