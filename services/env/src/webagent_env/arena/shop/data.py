"""The shop's data: products, customers, orders, reviews, and what its one shopper does. The admin looks at the same."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from random import Random

from webagent_env.arena.words import FIRST_NAMES, LAST_NAMES, STREET_KINDS, STREETS, TOWNS, words
from webagent_env.arena.world import TODAY, Store

# Everybody's password; the address below is who shops.
PASSWORD = "sunny-day-7"  # noqa: S105 - no secret
SHOPPER = "mara.ellis@mail.test"

SCHEMA = """
CREATE TABLE product (sku TEXT PRIMARY KEY, slug TEXT UNIQUE, name TEXT, category TEXT, price INTEGER, stock INTEGER,
  enabled INTEGER DEFAULT 1, material TEXT, weight INTEGER);
CREATE TABLE choice (slug TEXT, colour TEXT);
CREATE TABLE customer (email TEXT PRIMARY KEY, name TEXT, phone TEXT, street TEXT, town TEXT, joined TEXT,
  grouped TEXT DEFAULT 'General');
CREATE TABLE purchase (number TEXT PRIMARY KEY, email TEXT, placed TEXT, status TEXT, shipping TEXT, payment TEXT,
  street TEXT, town TEXT, note TEXT DEFAULT '');
CREATE TABLE line (number TEXT, slug TEXT, name TEXT, colour TEXT, price INTEGER, quantity INTEGER);
CREATE TABLE review (id INTEGER PRIMARY KEY, slug TEXT, nickname TEXT, stars INTEGER, title TEXT, text TEXT,
  written TEXT, status TEXT DEFAULT 'Approved');
CREATE TABLE cart (slug TEXT, colour TEXT, quantity INTEGER, PRIMARY KEY (slug, colour));
CREATE TABLE wish (slug TEXT PRIMARY KEY);
CREATE TABLE address (id INTEGER PRIMARY KEY, name TEXT, street TEXT, town TEXT);
"""

# What each category sells, and the cheapest and dearest of it in dollars.
CATEGORIES = {
    "Kitchen": (("Kettle", "Teapot", "Frying Pan", "Mixing Bowl", "Cutting Board", "Mug Set", "Pepper Mill"), 9, 80),
    "Garden": (("Watering Can", "Hand Trowel", "Plant Pot", "Hose Reel", "Bird Feeder", "Pruning Shears"), 6, 60),
    "Office": (("Desk Lamp", "Notebook", "Pen Holder", "Letter Tray", "Desk Clock", "Bookend"), 5, 90),
    "Clothing": (("Scarf", "Rain Jacket", "Wool Hat", "Work Shirt", "Apron", "Gloves"), 12, 120),
    "Sports": (("Yoga Mat", "Jump Rope", "Water Bottle", "Gym Bag", "Tennis Racket", "Foam Roller"), 8, 140),
    "Toys": (("Puzzle", "Wooden Train", "Kite", "Chess Set", "Marble Run", "Spinning Top"), 7, 70),
}
MAKERS = words(
    "Arbor Basalt Cobalt Delta Ember Falcon Granite Harvest Indigo Juno Kestrel Lumen Meridian Nimbus Orchid"
)
MATERIALS = ("Bamboo", "Cotton", "Steel", "Oak", "Linen", "Copper", "Recycled plastic", "Wool")
COLOURS = ("Black", "Blue", "Green", "Red", "White", "Yellow")
SHIPPING = {"Standard": 495, "Express": 1295, "Pickup": 0}
PAYMENTS = ("Card", "Invoice")
STATUSES = ("Pending", "Processing", "Complete", "Canceled")
_OPINIONS = (
    (5, "Love it", "Better than I hoped, and it looks good too."),
    (5, "Just right", "Sturdy and easy to clean. I would buy it again."),
    (4, "Good value", "Does what it should. The box was a bit dented."),
    (4, "Solid", "Well made, though heavier than I thought."),
    (3, "It is fine", "Nothing special, but it works."),
    (3, "Mixed feelings", "The colour differs from the picture."),
    (2, "Not for me", "Smaller than it looks in the picture."),
    (1, "Broke soon", "It broke after two weeks of use."),
    (1, "Disappointed", "Scratches easily and smells odd."),
)


def slug_of(name: str) -> str:
    """A product's name as its address has it."""
    return name.lower().replace(" ", "-")


def fill(into: sqlite3.Connection, draw: Random) -> None:
    """Draws a shop."""
    products = _products(into, draw)
    customers = _customers(into, draw)
    _purchases(into, draw, products, customers)
    _reviews(into, draw, products)
    _baskets(into, draw)


def _products(into: sqlite3.Connection, draw: Random) -> list[tuple[str, str, int]]:
    sold: list[tuple[str, str, int]] = []
    for category, (kinds, low, high) in CATEGORIES.items():
        names = sorted({f"{draw.choice(MAKERS)} {kind}" for kind in kinds for _ in range(2)})
        draw.shuffle(names)
        for name in names:
            price = draw.randrange(low, high) * 100 + draw.choice((0, 25, 50, 95, 99))
            # Some are sold out in every world.
            stock = draw.randrange(2, 60) if len(sold) % 9 else 0
            slug, sku = slug_of(name), f"{category[:2].upper()}-{1001 + len(sold)}"
            into.execute(
                "INSERT INTO product VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?)",
                (sku, slug, name, category, price, stock, draw.choice(MATERIALS), draw.randrange(1, 40) * 50),
            )
            if category in {"Clothing", "Sports"}:
                for colour in sorted(draw.sample(COLOURS, 3)):
                    into.execute("INSERT INTO choice VALUES (?, ?)", (slug, colour))
            sold.append((slug, name, price))
    return sold


def _customers(into: sqlite3.Connection, draw: Random) -> list[tuple[str, str, str]]:
    names = ["Mara Ellis"]
    while len(names) < 24:
        name = f"{draw.choice(FIRST_NAMES)} {draw.choice(LAST_NAMES)}"
        if name not in names:
            names.append(name)
    known = []
    for name in names:
        email = f"{name.lower().replace(' ', '.')}@mail.test"
        street, town = address_of(draw)
        phone = f"555-{draw.randrange(100, 1000)}-{draw.randrange(1000, 10000)}"
        joined = TODAY - timedelta(days=draw.randrange(200, 1200))
        grouped = draw.choice(("General", "General", "Retailer", "Wholesale"))
        into.execute(
            "INSERT INTO customer VALUES (?, ?, ?, ?, ?, ?, ?)",
            (email, name, phone, street, town, joined.isoformat(), grouped),
        )
        known.append((email, street, town))
    into.execute("INSERT INTO address (name, street, town) VALUES (?, ?, ?)", ("Mara Ellis", *known[0][1:]))
    return known


def address_of(draw: Random) -> tuple[str, str]:
    """A street with a number, and a town."""
    return f"{draw.randrange(1, 200)} {draw.choice(STREETS)} {draw.choice(STREET_KINDS)}", draw.choice(TOWNS)


def _purchases(
    into: sqlite3.Connection,
    draw: Random,
    products: list[tuple[str, str, int]],
    customers: list[tuple[str, str, str]],
) -> None:
    placed = TODAY - timedelta(days=380)
    for number in range(1, 91):
        placed += timedelta(days=draw.randrange(1, 8))
        if placed >= TODAY:
            break
        # Every fourth is the shopper's own.
        email, street, town = customers[0] if number % 4 == 0 else draw.choice(customers[1:])
        age = (TODAY - placed).days
        status = draw.choice(("Complete", "Complete", "Canceled") if age > 120 else STATUSES[:3])
        into.execute(
            "INSERT INTO purchase VALUES (?, ?, ?, ?, ?, ?, ?, ?, '')",
            (order_number(number), email, placed.isoformat(), status, draw.choice(tuple(SHIPPING)),
             draw.choice(PAYMENTS), street, town),
        )  # fmt: skip
        for slug, name, price in draw.sample(products, draw.choice((1, 2, 2, 3))):
            colours = [row[0] for row in into.execute("SELECT colour FROM choice WHERE slug = ?", (slug,))]
            into.execute(
                "INSERT INTO line VALUES (?, ?, ?, ?, ?, ?)",
                (order_number(number), slug, name, draw.choice(colours) if colours else "", price,
                 draw.choice((1, 1, 1, 2, 3))),
            )  # fmt: skip


def order_number(number: int) -> str:
    """Numbers of equal length: none begins another."""
    return f"{1000 + number:09}"


def _reviews(into: sqlite3.Connection, draw: Random, products: list[tuple[str, str, int]]) -> None:
    for slug, _, _ in products:
        for stars, title, text in draw.sample(_OPINIONS, draw.choice((0, 1, 2, 3))):
            nickname = f"{draw.choice(FIRST_NAMES)}{draw.randrange(10, 100)}"
            written = TODAY - timedelta(days=draw.randrange(2, 300))
            status = "Pending" if draw.random() < 0.12 else "Approved"
            into.execute(
                "INSERT INTO review (slug, nickname, stars, title, text, written, status) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (slug, nickname, stars, title, text, written.isoformat(), status),
            )


def _baskets(into: sqlite3.Connection, draw: Random) -> None:
    """What the shopper has put by."""
    query = (
        "SELECT slug FROM product WHERE stock > 5 AND category IN ('Kitchen', 'Garden', 'Office', 'Toys') ORDER BY slug"
    )
    slugs = draw.sample([row[0] for row in into.execute(query)], 7)
    into.executemany("INSERT INTO cart VALUES (?, '', ?)", [(slug, draw.randrange(1, 4)) for slug in slugs[:3]])
    into.executemany("INSERT INTO wish VALUES (?)", [(slug,) for slug in slugs[3:]])


STORE = Store("shop", SCHEMA, fill)
