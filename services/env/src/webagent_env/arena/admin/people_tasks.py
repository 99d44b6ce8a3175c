"""Intent templates of the administration: orders and customers."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from sqlite3 import Row

from webagent_env.arena.admin.site import ADMIN_PASSWORD, GROUPS
from webagent_env.arena.admin.tasks import period
from webagent_env.arena.intents import OR_NOT, Chapter, Goal, answer, not_possible, shows, stops_at
from webagent_env.arena.shop.data import STATUSES
from webagent_env.arena.words import FIRST_NAMES, LAST_NAMES
from webagent_env.arena.world import World

PEOPLE = Chapter("shopping_admin", start=("__SHOPPING_ADMIN__/",))
_ORDER = "document.querySelector('#order').dataset.summary"
_CUSTOMER = "document.querySelector('#customer').dataset.summary"
_COMMENTS = ("Sent today", "Waits for stock", "Customer called", "Address checked", "Gift wrapped", "Paid twice")


def orders_of(world: World, draw: Random) -> list[Row]:
    """All orders with their customers, in random order."""
    found = world.data("shop").all(
        "SELECT number, placed, status, note, name, email, phone FROM purchase JOIN customer USING (email)"
        " ORDER BY number"
    )
    draw.shuffle(found)
    return found


def customers_of(world: World, draw: Random) -> list[Row]:
    """All customers, in random order."""
    found = world.data("shop").all("SELECT * FROM customer ORDER BY email")
    draw.shuffle(found)
    return found


# ---- orders ----------------------------------------------------------------------------------------------------------
@PEOPLE.intent(
    "admin-count", "How many {{status}} orders are there from {{first}} to {{last}}? Answer with the number."
)
def count(world: World, draw: Random) -> Iterator[Goal]:
    """Orders, a status, two dates, filter, read."""
    query = "SELECT count(*) FROM purchase WHERE status = ? AND placed BETWEEN ? AND ?"
    for _ in range(100):
        status, (first, last) = draw.choice(STATUSES), period(draw)
        number = world.data("shop").value(query, status, first, last)
        yield Goal({"status": status.lower(), "first": first, "last": last}, answer(str(number)))


@PEOPLE.intent(
    "admin-order", 'Set the order that {{name}} placed on {{day}} to {{status}}, with the comment "{{comment}}".'
)
def set_order(world: World, draw: Random) -> Iterator[Goal]:
    """Orders, two dates, filter, open, choose, type, save."""
    for one in orders_of(world, draw):
        status = draw.choice([each for each in STATUSES if each != one["status"]])
        comment = draw.choice(_COMMENTS)
        values = {"name": one["name"], "day": one["placed"], "status": status.lower(), "comment": comment}
        url = f"__SHOPPING_ADMIN__/orders/{one['number']}.html"
        yield Goal(values, shows((url, _ORDER, f"{status} | {comment}")))


@PEOPLE.intent("admin-order-of", "Open the newest order of the customer {{name}}. " + OR_NOT)
def newest_order(world: World, draw: Random) -> Iterator[Goal]:
    """Customers, search, open, open."""
    query = "SELECT number FROM purchase WHERE email = ? ORDER BY number DESC"
    for each in customers_of(world, draw):
        number = world.data("shop").value(query, each["email"])
        rule = not_possible() if number is None else stops_at(f"__SHOPPING_ADMIN__/orders/{number}.html")
        yield Goal({"name": each["name"]}, rule)


@PEOPLE.intent("admin-buyer", "Which phone number has the customer of the order of {{day}}? Answer with it. " + OR_NOT)
def buyer(world: World, draw: Random) -> Iterator[Goal]:
    """Orders, two dates, filter, open, customer, read."""
    orders = orders_of(world, draw)
    days = [each["placed"] for each in orders]
    for one in orders:
        if days.count(one["placed"]) == 1:
            yield Goal({"day": one["placed"]}, answer(one["phone"]))
        year, month, day = one["placed"].split("-")
        other = f"{year}-{month}-{int(day) % 28 + 1:02}"
        if other not in days and draw.random() < 0.15:
            yield Goal({"day": other}, not_possible())


# ---- customers -------------------------------------------------------------------------------------------------------
@PEOPLE.intent("admin-email", "What is the email address of the customer {{name}}? Answer with it. " + OR_NOT)
def email(world: World, draw: Random) -> Iterator[Goal]:
    """Customers, search, open, read."""
    customers = customers_of(world, draw)
    names = [each["name"] for each in customers]
    for each in customers:
        yield Goal({"name": each["name"]}, answer(each["email"]))
        absent = f"{draw.choice(FIRST_NAMES)} {draw.choice(LAST_NAMES)}"
        if absent not in names and draw.random() < 0.25:
            yield Goal({"name": absent}, not_possible())


@PEOPLE.intent(
    "admin-customer", "Move the customer {{name}} to the group {{group}} and set the phone number to {{phone}}."
)
def edit_customer(world: World, draw: Random) -> Iterator[Goal]:
    """Customers, search, open, choose, type, save."""
    for each in customers_of(world, draw):
        for group in GROUPS:
            if group != each["grouped"]:
                phone = f"555-{draw.randrange(100, 1000)}-{draw.randrange(1000, 10000)}"
                values = {"name": each["name"], "group": group, "phone": phone}
                url = f"__SHOPPING_ADMIN__/customers/{each['email']}.html"
                yield Goal(values, shows((url, _CUSTOMER, f"{phone} | {group}")))


@PEOPLE.intent(
    "admin-group",
    "How many customers of the group {{group}} have {{name}} in their name? Answer with the number.",
    held_out=True,
)
def group_size(world: World, draw: Random) -> Iterator[Goal]:
    """Customers, type, choose, filter, read."""
    customers = customers_of(world, draw)
    for _ in range(150):
        group, name = draw.choice(GROUPS), draw.choice(draw.choice(customers)["name"].split())[:3].lower()
        number = sum(
            each["grouped"] == group and (name in each["name"].lower() or name in each["email"]) for each in customers
        )
        yield Goal({"group": group, "name": name}, answer(str(number)))


@PEOPLE.intent(
    "admin-sign-in",
    "Sign in as admin with the password {{password}} and answer with the status of the order of {{day}}.",
    signed_out=True,
    held_out=True,
)
def sign_in(world: World, draw: Random) -> Iterator[Goal]:
    """Sign in, orders, two dates, filter, read."""
    orders = orders_of(world, draw)
    days = [each["placed"] for each in orders]
    for one in orders:
        if days.count(one["placed"]) == 1:
            yield Goal({"password": ADMIN_PASSWORD, "day": one["placed"]}, answer(one["status"]))
