"""A shop: search, categories, cart, checkout, orders, wish list, reviews."""
