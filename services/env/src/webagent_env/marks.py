"""Draws the numbers of elements on a screenshot, so that the page itself is never touched for it."""

from __future__ import annotations

import io

from PIL import Image, ImageDraw, ImageFont

_COLORS = ("#d32f2f", "#1976d2", "#388e3c", "#7b1fa2", "#c2570c", "#00796b")


def mark(png: bytes, boxes: list[list[float]]) -> bytes:
    """The screenshot with each box framed and its position in the list written at its corner."""
    with Image.open(io.BytesIO(png)) as opened:
        image = opened.convert("RGB")
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=11)
    for number, (left, top, right, bottom) in enumerate(boxes):
        if right - left < 1 or bottom - top < 1:
            continue
        color = _COLORS[number % len(_COLORS)]
        draw.rectangle((left, top, right - 1, bottom - 1), outline=color, width=2)
        text = str(number)
        width = draw.textlength(text, font=font) + 4
        x = min(max(0.0, left), image.width - width)
        y = min(max(0.0, top - 12 if top >= 12 else top), image.height - 13.0)
        draw.rectangle((x, y, x + width, y + 13), fill=color)
        draw.text((x + 2, y), text, fill="white", font=font)
    written = io.BytesIO()
    image.save(written, "PNG", compress_level=1)
    return written.getvalue()
