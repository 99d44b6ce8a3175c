"""The shop's administration: products, orders, customers, reviews, reports. It works on the shop's own data."""
