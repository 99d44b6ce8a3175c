"""Intent templates that span two of the sites shop, administration and map; each begins in a tab of its own."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from webagent_env.arena.admin.people_tasks import customers_of
from webagent_env.arena.admin.site import bestsellers, summary
from webagent_env.arena.admin.tasks import period, product_is
from webagent_env.arena.intents import Chapter, Goal, also, answer
from webagent_env.arena.map.data import kilometres, metres, minutes
from webagent_env.arena.map.tasks import places
from webagent_env.arena.shop.data import SHOPPER
from webagent_env.arena.shop.tasks import cart_is, cart_of, products
from webagent_env.arena.site import day
from webagent_env.arena.world import World

# Products without a choice of colours that are not in the cart already.
_PLAIN = "slug NOT IN (SELECT slug FROM choice UNION SELECT slug FROM cart)"
SHOP_AND_MAP = Chapter("shopping", "map", start=("__SHOPPING__/", "__MAP__/"))
ADMIN_AND_MAP = Chapter("shopping_admin", "map", start=("__SHOPPING_ADMIN__/", "__MAP__/"))
ADMIN_AND_SHOP = Chapter("shopping_admin", "shopping", start=("__SHOPPING_ADMIN__/", "__SHOPPING__/"))


@SHOP_AND_MAP.intent(
    "across-order-way",
    "Take the town that my shop order of {{day}} went to. How far is it from there to the {{place}} on the map?"
    " Answer in km, such as 3.5 km.",
)
def order_way(world: World, draw: Random) -> Iterator[Goal]:
    """An order's town, then directions."""
    orders = world.data("shop").all("SELECT * FROM purchase WHERE email = ? ORDER BY number", SHOPPER)
    for _ in range(100):
        order, place = draw.choice(orders), places(world, draw)[0]
        town = world.data("map").one("SELECT * FROM place WHERE name = ?", order["town"])
        assert town is not None
        values = {"day": day(order["placed"]), "place": place["name"]}
        yield Goal(values, answer(kilometres(metres(town, place))))


@ADMIN_AND_MAP.intent(
    "across-customer-way",
    "Take the town that the customer {{name}} lives in. How many minutes does it take by car from there to the"
    " {{place}} on the map? Answer with the number.",
)
def customer_way(world: World, draw: Random) -> Iterator[Goal]:
    """A customer's town, then directions."""
    for each in customers_of(world, draw) * 3:
        town = world.data("map").one("SELECT * FROM place WHERE name = ?", each["town"])
        assert town is not None
        place = places(world, draw)[0]
        values = {"name": each["name"], "place": place["name"]}
        yield Goal(values, answer(str(minutes(metres(town, place), "Car"))))


@ADMIN_AND_SHOP.intent(
    "across-best-cart",
    "Find out in the administration which product sold most from {{first}} to {{last}}, and put one of it into the"
    " cart of the shop.",
)
def best_into_cart(world: World, draw: Random) -> Iterator[Goal]:
    """A report, then the shop."""
    data, before = world.data("shop"), cart_of(world)
    for _ in range(150):
        first, last = period(draw)
        rows = bestsellers(data, first, last)
        if len(rows) < 2 or rows[0]["sold"] == rows[1]["sold"]:
            continue
        if data.one(f"SELECT 1 FROM product WHERE name = ? AND stock AND {_PLAIN}", rows[0]["name"]):  # noqa: S608
            yield Goal({"first": first, "last": last}, cart_is([*before, f"1 x {rows[0]['name']}"]))


@ADMIN_AND_SHOP.intent(
    "across-restock-cart",
    "The {{product}} is sold out in the shop. Set its stock to {{stock}} in the administration, then put {{quantity}}"
    " of it into the cart of the shop.",
    held_out=True,
)
def restock_and_buy(world: World, draw: Random) -> Iterator[Goal]:
    """Edit a product, then buy it."""
    before = cart_of(world)
    sold_out = products(world, draw, "stock = 0 AND category IN ('Kitchen', 'Garden', 'Office', 'Toys')")
    for _ in range(100 if sold_out else 0):
        each = draw.choice(sold_out)
        stock, quantity = draw.randrange(10, 60), draw.randrange(1, 6)
        rule = also(
            product_is(each["sku"], summary(each["name"], each["price"], stock, online=True)),
            cart_is([*before, f"{quantity} x {each['name']}"]),
        )
        yield Goal({"product": each["name"], "stock": str(stock), "quantity": str(quantity)}, rule)


@ADMIN_AND_SHOP.intent(
    "across-price-cart",
    "Set the price of the {{product}} to ${{price}} in the administration, then put {{quantity}} of it into the cart of"
    " the shop.",
)
def price_and_buy(world: World, draw: Random) -> Iterator[Goal]:
    """Edit a product, then buy it."""
    before = cart_of(world)
    for each in products(world, draw, f"stock > 6 AND {_PLAIN}"):
        price, quantity = draw.randrange(300, 9000, 5), draw.randrange(1, 6)
        rule = also(
            product_is(each["sku"], summary(each["name"], price, each["stock"], online=True)),
            cart_is([*before, f"{quantity} x {each['name']}"]),
        )
        values = {"product": each["name"], "price": f"{price / 100:.2f}", "quantity": str(quantity)}
        yield Goal(values, rule)
