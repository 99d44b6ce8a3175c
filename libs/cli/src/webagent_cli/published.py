"""Success rates that the paper published on WebArena-Lite (its table 2), in per cent. Nothing here was run by us."""

SITES = ("reddit", "gitlab", "shopping_admin", "map", "shopping")
SOURCE = "published on WebArena-Lite's 165 tasks: WebAgent-R1, arXiv 2505.16421, table 2; its rows mix denominators"
# Method, then Reddit, GitLab, CMS, Map, Shopping and the average.
TABLE_2: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("Qwen2.5-3B, prompted", (5.3, 13.3, 5.7, 0.0, 4.4, 6.1)),
    ("Llama3.1-8B, prompted", (5.3, 10.0, 5.7, 15.4, 8.9, 8.5)),
    ("Qwen2.5-32B, prompted", (10.5, 20.0, 20.0, 19.2, 17.8, 16.9)),
    ("GPT-4o, prompted", (10.5, 10.0, 20.0, 20.0, 11.1, 13.9)),
    ("GPT-4-Turbo, prompted", (10.5, 16.7, 14.3, 36.7, 13.3, 17.6)),
    ("QwQ-32B, prompted", (15.8, 33.3, 25.7, 15.4, 20.0, 22.4)),
    ("o3, prompted", (36.8, 46.7, 45.7, 38.5, 33.3, 39.4)),
    ("o4-mini, prompted", (47.4, 43.3, 45.7, 26.9, 28.9, 36.9)),
    ("Qwen2.5-3B, BC", (42.1, 16.7, 22.9, 26.9, 11.1, 20.0)),
    ("Qwen2.5-3B, WebAgent-R1", (26.3, 53.3, 48.6, 26.9, 24.4, 33.9)),
    ("Llama3.1-8B, BC", (36.8, 6.7, 20.0, 33.3, 17.8, 20.6)),
    ("Llama3.1-8B, Filtered BC", (52.6, 20.0, 31.4, 23.3, 8.9, 23.0)),
    ("Llama3.1-8B, AWR", (57.9, 26.7, 31.4, 26.7, 17.8, 28.5)),
    ("Llama3.1-8B, DigiRL", (57.9, 26.7, 37.1, 33.3, 17.8, 30.3)),
    ("Llama3.1-8B, WebRL", (63.2, 46.7, 54.3, 36.7, 31.1, 42.4)),
    ("Llama3.1-8B, WebAgent-R1", (47.4, 56.7, 57.1, 23.1, 44.4, 44.8)),
)
