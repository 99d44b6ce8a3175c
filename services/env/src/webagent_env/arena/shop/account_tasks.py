"""Intent templates of the shop: orders, wish list, reviews, addresses, signing in."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from random import Random

from webagent_env.arena.intents import OR_NOT, Chapter, Goal, also, answer, not_possible, shows, stops_at, texts_of
from webagent_env.arena.shop.account import lines_of, next_number
from webagent_env.arena.shop.data import PASSWORD, PAYMENTS, SHIPPING, SHOPPER, STATUSES, address_of
from webagent_env.arena.shop.site import described, in_cart
from webagent_env.arena.shop.tasks import absent_product, cart_is, cart_of, products
from webagent_env.arena.site import day, money
from webagent_env.arena.words import FIRST_NAMES, LAST_NAMES
from webagent_env.arena.world import TODAY, Data, World

ACCOUNT = Chapter("shopping", start=("__SHOPPING__/",))
_OWN = "SELECT * FROM purchase WHERE email = ? ORDER BY number DESC"
_SUMMARY = "document.querySelector('#order').dataset.summary"
_WISHES = "[...document.querySelectorAll('.wish')].map((each) => each.dataset.name).join('; ')"
_REVIEWS = "[...document.querySelectorAll('.review')].map((each) => each.dataset.review).join('; ')"
_TITLES = ("Great gift", "Works well", "Could be better", "Very happy", "Not bad", "A daily companion", "Overpriced")
_TEXTS = ("It arrived on time.", "My sister loves it.", "The lid is loose.", "I use it every day.", "The colour fades.")


def ordered(data: Data, number: str, summary: str) -> dict[str, object]:
    """The rule that one new order was placed, and what it is."""
    orders = data.value("SELECT count(*) FROM purchase WHERE email = ?", SHOPPER) + 1
    return shows(
        (f"__SHOPPING__/orders/{number}.html", _SUMMARY, summary),
        ("__SHOPPING__/orders", texts_of("#count"), f"{orders} orders"),
    )


# ---- orders ----------------------------------------------------------------------------------------------------------
@ACCOUNT.intent("shop-order-total", "What was the total of my order of {{day}}? Answer with the amount. " + OR_NOT)
def order_total(world: World, draw: Random) -> Iterator[Goal]:
    """Account, orders, further pages, open, read."""
    data = world.data("shop")
    own = data.all(_OWN, SHOPPER)
    days = [row["placed"] for row in data.all("SELECT placed FROM purchase WHERE email <> ?", SHOPPER)]
    draw.shuffle(own)
    for one in own:
        goods = sum(line["price"] * line["quantity"] for line in lines_of(data, one["number"]))
        yield Goal({"day": day(one["placed"])}, answer(money(goods + SHIPPING[one["shipping"]])))
        other = draw.choice(days)
        if draw.random() < 0.2 and all(each["placed"] != other for each in own):
            yield Goal({"day": day(other)}, not_possible())


@ACCOUNT.intent("shop-order-open", "Open my newest {{status}} order that was placed before {{day}}.")
def order_open(world: World, draw: Random) -> Iterator[Goal]:
    """Account, orders, filter, further pages, open."""
    own = world.data("shop").all(_OWN, SHOPPER)
    for _ in range(100):
        status, before = draw.choice(STATUSES), (TODAY - timedelta(days=draw.randrange(300))).isoformat()
        found = [one["number"] for one in own if one["status"] == status and one["placed"] < before]
        if found:
            values = {"status": status.lower(), "day": day(before)}
            yield Goal(values, stops_at(f"__SHOPPING__/orders/{found[0]}.html"))


@ACCOUNT.intent("shop-reorder", "Order again what I bought on {{day}}: put it into the cart, besides what is there.")
def reorder(world: World, draw: Random) -> Iterator[Goal]:
    """Account, orders, further pages, open, reorder."""
    data, before = world.data("shop"), cart_of(world)
    held = {line["slug"] for line in in_cart(data)[0]}
    own = data.all(_OWN, SHOPPER)
    draw.shuffle(own)
    for one in own:
        lines = lines_of(data, one["number"])
        if not any(line["slug"] in held for line in lines):
            yield Goal({"day": day(one["placed"])}, cart_is([*before, *map(described, lines)]))


@ACCOUNT.intent(
    "shop-cancel", "Cancel my order of {{day}}. " + 'If it cannot be canceled any more, answer "N/A".', held_out=True
)
def cancel(world: World, draw: Random) -> Iterator[Goal]:
    """Account, orders, open, cancel, if there is a button for it."""
    own = world.data("shop").all(_OWN, SHOPPER)
    draw.shuffle(own)
    for one in own:
        if one["status"] in {"Pending", "Processing"}:
            rule = shows((f"__SHOPPING__/orders/{one['number']}.html", texts_of("#status"), "Canceled"))
        else:
            rule = not_possible()
        if one["status"] in {"Pending", "Processing"} or (one["status"] == "Complete" and draw.random() < 0.3):
            yield Goal({"day": day(one["placed"])}, rule)


@ACCOUNT.intent(
    "shop-checkout",
    "Buy what is in the cart, with shipping {{shipping}} to {{street}}, {{town}}, and pay by {{payment}}.",
)
def checkout(world: World, draw: Random) -> Iterator[Goal]:
    """Cart, checkout, four fields, place."""
    data = world.data("shop")
    for _ in range(60):
        street, town = address_of(draw)
        shipping, payment = draw.choice(tuple(SHIPPING)), draw.choice(PAYMENTS)
        summary = f"{'; '.join(cart_of(world))} | {shipping} | {payment} | {street}, {town}"
        values = {"shipping": shipping.lower(), "street": street, "town": town, "payment": payment.lower()}
        yield Goal(values, ordered(data, next_number(data), summary))


@ACCOUNT.intent(
    "shop-buy-only",
    "Buy only the {{product}} that is in the cart, nothing else, with shipping {{shipping}}, and pay by {{payment}}.",
)
def buy_only(world: World, draw: Random) -> Iterator[Goal]:
    """Empty the cart but for one line, then check out."""
    data = world.data("shop")
    customer = data.one("SELECT * FROM customer WHERE email = ?", SHOPPER)
    assert customer is not None
    for _ in range(60):
        line = draw.choice(in_cart(data)[0])
        shipping, payment = draw.choice(tuple(SHIPPING)), draw.choice(PAYMENTS)
        summary = f"{described(line)} | {shipping} | {payment} | {customer['street']}, {customer['town']}"
        values = {"product": line["name"], "shipping": shipping.lower(), "payment": payment.lower()}
        yield Goal(values, ordered(data, next_number(data), summary))


@ACCOUNT.intent(
    "shop-buy-new",
    "Empty the cart, then buy {{quantity}} of the {{product}} with shipping {{shipping}}, and pay by {{payment}}.",
)
def buy_new(world: World, draw: Random) -> Iterator[Goal]:
    """Remove every line, search, open, type, add, check out."""
    data = world.data("shop")
    customer = data.one("SELECT * FROM customer WHERE email = ?", SHOPPER)
    assert customer is not None
    where = "stock > 6 AND slug NOT IN (SELECT slug FROM choice UNION SELECT slug FROM cart)"
    for each in products(world, draw, where):
        quantity, shipping, payment = draw.randrange(2, 7), draw.choice(tuple(SHIPPING)), draw.choice(PAYMENTS)
        address = f"{customer['street']}, {customer['town']}"
        summary = f"{quantity} x {each['name']} | {shipping} | {payment} | {address}"
        values = {"quantity": str(quantity), "product": each["name"]}
        values |= {"shipping": shipping.lower(), "payment": payment.lower()}
        yield Goal(values, ordered(data, next_number(data), summary))


@ACCOUNT.intent(
    "shop-sign-in",
    "Sign in as {{email}} with the password {{password}} and give the newest order's status. Answer with one word.",
    signed_out=True,
)
def sign_in(world: World, draw: Random) -> Iterator[Goal]:
    """Sign in, account, orders, read."""
    data = world.data("shop")
    emails = [row["email"] for row in data.all("SELECT DISTINCT email FROM purchase ORDER BY email")]
    draw.shuffle(emails)
    for email in emails:
        newest = data.all(_OWN, email)[0]
        yield Goal({"email": email, "password": PASSWORD}, answer(newest["status"]))


# ---- wish list, reviews, addresses -----------------------------------------------------------------------------------
@ACCOUNT.intent("shop-wish", "Put the {{product}} on my wish list. " + OR_NOT)
def wish(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, add."""
    held = [row["name"] for row in world.data("shop").all("SELECT name FROM wish JOIN product USING (slug)")]
    for each in products(world, draw):
        if each["name"] not in held:
            wished = "; ".join(sorted([*held, each["name"]]))
            yield Goal({"product": each["name"]}, shows(("__SHOPPING__/wishes", _WISHES, wished)))
        if draw.random() < 0.15:
            yield Goal({"product": absent_product(world, draw)}, not_possible())


@ACCOUNT.intent(
    "shop-wish-buy",
    "Put {{quantity}} of the {{product}} from my wish list into the cart, and take it off the list.",
    held_out=True,
)
def wish_to_cart(world: World, draw: Random) -> Iterator[Goal]:
    """Wish list, open, add, wish list again, remove."""
    data, before = world.data("shop"), cart_of(world)
    held = data.all("SELECT product.* FROM wish JOIN product USING (slug) ORDER BY name")
    for _ in range(100):
        one = draw.choice(held)
        quantity = draw.randrange(1, 6)
        left = "; ".join(each["name"] for each in held if each is not one)
        rule = also(cart_is([*before, f"{quantity} x {one['name']}"]), shows(("__SHOPPING__/wishes", _WISHES, left)))
        yield Goal({"quantity": str(quantity), "product": one["name"]}, rule)


@ACCOUNT.intent(
    "shop-review", 'Review the {{product}} with {{stars}} stars, the title "{{title}}" and the text "{{text}}".'
)
def review(world: World, draw: Random) -> Iterator[Goal]:
    """Search, open, reviews, write, three fields, submit."""
    data = world.data("shop")
    query = "SELECT * FROM review WHERE slug = ? AND status = 'Approved' ORDER BY written DESC, id DESC"
    for each in products(world, draw):
        stars, title, text = str(draw.randrange(1, 6)), draw.choice(_TITLES), draw.choice(_TEXTS)
        there = [
            f"{row['nickname']}: {row['stars']}, {row['title']}, {row['text']}" for row in data.all(query, each["slug"])
        ]
        after = "; ".join([f"{SHOPPER.partition('@')[0]}: {stars}, {title}, {text}", *there])
        values = {"product": each["name"], "stars": stars, "title": title, "text": text}
        yield Goal(values, shows((f"__SHOPPING__/product/{each['slug']}.html/reviews", _REVIEWS, after)))


@ACCOUNT.intent("shop-address", "Add an address to my address book: {{name}}, {{street}}, {{town}}.")
def address(world: World, draw: Random) -> Iterator[Goal]:
    """Account, address book, unfold, three fields, save."""
    own = world.data("shop").one("SELECT * FROM address")
    assert own is not None
    for _ in range(60):
        name = f"{draw.choice(FIRST_NAMES)} {draw.choice(LAST_NAMES)}"
        street, town = address_of(draw)
        listed = f"{own['name']}, {own['street']}, {own['town']}; {name}, {street}, {town}"
        yield Goal(
            {"name": name, "street": street, "town": town},
            shows(("__SHOPPING__/addresses", texts_of(".address"), listed)),
        )


@ACCOUNT.intent("shop-phone", "Change the phone number of my account to {{phone}}.", held_out=True)
def phone(world: World, draw: Random) -> Iterator[Goal]:
    """Account, type, save."""
    for _ in range(60):
        number = f"555-{draw.randrange(100, 1000)}-{draw.randrange(1000, 10000)}"
        held = "[...document.querySelectorAll('[name=phone]')].map((each) => each.defaultValue).join()"
        yield Goal({"phone": number}, shows(("__SHOPPING__/account", held, number)))
