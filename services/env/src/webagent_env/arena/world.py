"""The data of one session's sites: private to it, and equal at the start for equal numbers.

A store is the data behind one site, or behind several that look at the same things. It is an SQLite database in
memory, filled from random numbers that the world's number seeds. A filled one is kept as bytes, and each further world
of that number begins with a copy. Nothing of a world outlives its session.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from random import Random
from typing import Any

# The sites' own day: what is new is of today, whatever the machine's clock says.
TODAY = date(2024, 5, 20)
_MOST_KEPT = 256


@dataclass(frozen=True, slots=True)
class Store:
    """What the data of a site looks like, and how it comes to be."""

    name: str
    schema: str
    fill: Callable[[sqlite3.Connection, Random], None]


class Data:
    """An open store. Rows are read by column name."""

    def __init__(self, image: bytes) -> None:
        self._connection = sqlite3.connect(":memory:")
        self._connection.deserialize(image)
        self._connection.row_factory = sqlite3.Row

    def all(self, query: str, *values: object) -> list[sqlite3.Row]:
        """All rows of a query."""
        return self._connection.execute(query, values).fetchall()

    def one(self, query: str, *values: object) -> sqlite3.Row | None:
        """The first row of a query, if there is one."""
        row: sqlite3.Row | None = self._connection.execute(query, values).fetchone()
        return row

    def value(self, query: str, *values: object) -> Any:
        """The first value of the first row; None if there is none."""
        row = self.one(query, *values)
        return None if row is None else row[0]

    def do(self, statement: str, *values: object) -> int:
        """Changes something; the new row's number."""
        cursor = self._connection.execute(statement, values)
        self._connection.commit()
        return cursor.lastrowid or 0

    def close(self) -> None:
        """Forgets everything."""
        self._connection.close()


@dataclass
class World:
    """What one session finds on its sites, and what it has done there."""

    number: int
    _open: Callable[[str], Data]
    # Who is signed in, by site; nobody where a site has no entry.
    users: dict[str, str] = field(default_factory=dict)
    # What a site is to say on its next page.
    notices: dict[str, str] = field(default_factory=dict)
    _data: dict[str, Data] = field(default_factory=dict)

    def data(self, store: str) -> Data:
        """A store's data, made when it is first asked for."""
        if store not in self._data:
            self._data[store] = self._open(store)
        return self._data[store]

    def close(self) -> None:
        """Forgets everything."""
        for data in self._data.values():
            data.close()
        self._data.clear()


class Worlds:
    """Makes worlds."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self.stores = stores
        self._images: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def make(self, number: int) -> World:
        """A world that nobody has touched."""
        return World(number, lambda store: Data(self._image(store, number)))

    def _image(self, name: str, number: int) -> bytes:
        key = name, number
        if key not in self._images:
            self._images[key] = _filled(self.stores[name], number)
            if len(self._images) > _MOST_KEPT:
                self._images.popitem(last=False)
        self._images.move_to_end(key)
        return self._images[key]


def _filled(store: Store, number: int) -> bytes:
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(store.schema)
        store.fill(connection, Random(f"{store.name}/{number}"))  # noqa: S311 - no secret is drawn
        connection.commit()
        return connection.serialize()
    finally:
        connection.close()
