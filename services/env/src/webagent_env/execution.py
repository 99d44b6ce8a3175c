"""Performs one action on a tab, by the input a person would give: real mouse and keyboard events.

Returns None when it was done, or what the page did not let happen. It waits for nothing afterwards; see `Tab.finish`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from playwright.async_api import Error

from webagent_env.actions import (
    Action,
    Click,
    Failed,
    File,
    GoBackward,
    GoForward,
    Goto,
    Hover,
    PressEnter,
    PressKey,
    Reason,
    RightClick,
    ScrollDown,
    ScrollUp,
    Search,
    SelectDropdownOption,
    SwitchTab,
    Type,
    Upload,
    Wait,
)
from webagent_env.cdp import DocumentReplacedError, PageGoneError
from webagent_env.page import Tab

WAIT_SECONDS = 1.0
# A longer text is put in at once up to here from its end; the rest is typed key by key, which pages listen for.
_TYPED_TAIL = 100
_SCROLL_SHARE = 2 / 3
_DATE = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")
_TIME = re.compile(r"(\d{1,2}):(\d{2})\s*([AaPp])\.?[Mm]\.?")


async def perform(tab: Tab, action: Action, closing: asyncio.Event, navigation: float) -> Failed | None:
    """Does the action. `closing` cuts a wait short when the session ends; PageGoneError where the tab is gone.

    An address that does not answer within `navigation` seconds is not loaded.
    """
    try:
        if isinstance(action, Goto):
            return await _goto(tab, action.url, navigation)
        return await _DOING[type(action)](tab, action, closing)
    except DocumentReplacedError:
        return Failed(Reason.NOT_INTERACTABLE, "the page was replaced while the action went on")
    except Error as error:
        # What input cannot be given to a page that lives is the page's doing; a dead one is the environment's.
        if tab.gone() or "closed" in error.message.lower():
            raise PageGoneError(error.message) from error
        return Failed(Reason.NOT_INTERACTABLE, error.message.splitlines()[0])


_WHY = {"gone": Reason.ELEMENT_GONE, "covered": Reason.ELEMENT_COVERED}


def _refused(element: str, answer: dict[str, Any]) -> Failed:
    return Failed(_WHY.get(answer.get("why", ""), Reason.NOT_INTERACTABLE), f"element {element}: {answer['failed']}")


async def _show(tab: Tab) -> None:
    """Brings the tab before the others."""
    await tab.page.bring_to_front()
    await tab.begin(None)


async def _click(tab: Tab, element: str, button: Any) -> Failed | None:
    point = await tab.begin(int(element))
    if "failed" in point:
        return _refused(element, point)
    await tab.page.mouse.click(point["x"], point["y"], button=button)
    return None


async def _hover(tab: Tab, element: str) -> Failed | None:
    point = await tab.begin(int(element))
    if "failed" in point:
        return _refused(element, point)
    await tab.page.mouse.move(point["x"], point["y"])
    return None


async def _type(tab: Tab, element: str, text: str) -> Failed | None:
    label = int(element)
    point = await tab.begin(label, typing=True)
    if "failed" in point:
        return _refused(element, point)
    if point["whole"] is not None:
        done = await tab.call_on(label, "setWhole", _field_value(point["whole"], text))
        return _refused(element, done) if "failed" in done else None
    await tab.page.mouse.click(point["x"], point["y"])
    selected = await tab.call_on(label, "selectAll")
    if "failed" in selected:
        return _refused(element, selected)
    keyboard = tab.page.keyboard
    if not selected["empty"]:
        await keyboard.press("Delete")
    if len(text) > _TYPED_TAIL:
        await keyboard.insert_text(text[:-_TYPED_TAIL])
    if text:
        await keyboard.type(text[-_TYPED_TAIL:])
    return None


def _field_value(kind: str, text: str) -> str:
    """The form in which a date or time field takes its value, from the one people write."""
    text = text.strip()
    if kind == "date" and (date := _DATE.fullmatch(text)):
        month, day, year = date.groups()
        return f"{year}-{int(month):02}-{int(day):02}"
    if kind == "time" and (time := _TIME.fullmatch(text)):
        hour, minute, half = time.groups()
        return f"{int(hour) % 12 + (12 if half in 'Pp' else 0):02}:{minute}"
    if kind == "time" and re.fullmatch(r"\d:\d{2}", text):
        return f"0{text}"
    return text


async def _pick(tab: Tab, element: str, option: str) -> Failed | None:
    label = int(element)
    point = await tab.begin(label)
    if "failed" in point:
        return _refused(element, point)
    done = await tab.call_on(label, "pick", option)
    if "failed" in done:
        return _refused(element, done)
    if done.get("disabled"):
        return Failed(Reason.OPTION_DISABLED, f"the option {option[:200]!r} of element {element} is disabled")
    if "missing" in done:
        return Failed(Reason.NO_SUCH_OPTION, f"element {element} has no option {option[:200]!r}")
    return None


async def _scroll(tab: Tab, direction: int) -> Failed | None:
    middle = await tab.begin(None)
    await tab.page.mouse.move(middle["x"], middle["y"])
    await tab.page.mouse.wheel(0, direction * round(middle["height"] * _SCROLL_SHARE))
    return None


async def _press(tab: Tab, key: str) -> Failed | None:
    await tab.begin(None)
    await tab.page.keyboard.press(key)
    return None


async def _goto(tab: Tab, url: str, bound: float) -> Failed | None:
    await tab.begin(None)
    try:
        async with asyncio.timeout(bound):
            why = await tab.goto(url)
    except TimeoutError:
        await tab.stop_loading()
        why = f"no answer in {bound:g} s"
    return Failed(Reason.NOT_LOADED, f"{url[:200]} did not load: {why}") if why else None


async def _upload(tab: Tab, element: str, files: tuple[File, ...]) -> Failed | None:
    await tab.begin(None)
    paths = await asyncio.to_thread(tab.scratch.keep, files)
    if await tab.give_files(int(element), paths):
        return None
    return Failed(Reason.NOT_INTERACTABLE, f"element {element}: it is no file field, or it is disabled")


async def _press_enter(tab: Tab, *, begun: bool = False) -> Failed | None:
    if not begun:
        await tab.begin(None)
    await tab.page.keyboard.press("Enter")
    return None


async def _go(tab: Tab, step: int) -> Failed | None:
    await tab.begin(None)
    if await tab.history(step):
        return None
    return Failed(Reason.NOWHERE_TO_GO, "there is no page " + ("before" if step < 0 else "after") + " this one")


async def _wait(tab: Tab, closing: asyncio.Event) -> Failed | None:
    await tab.begin(None)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await closing.wait()
    except TimeoutError:
        return None
    return None


async def _search(tab: Tab, element: str, text: str) -> Failed | None:
    return await _type(tab, element, text) or await _press_enter(tab, begun=True)


_DOING: dict[type[Action], Callable[[Tab, Any, asyncio.Event], Awaitable[Failed | None]]] = {
    Click: lambda tab, action, _: _click(tab, action.element, "left"),
    RightClick: lambda tab, action, _: _click(tab, action.element, "right"),
    Hover: lambda tab, action, _: _hover(tab, action.element),
    Type: lambda tab, action, _: _type(tab, action.element, action.text),
    Search: lambda tab, action, _: _search(tab, action.element, action.text),
    SelectDropdownOption: lambda tab, action, _: _pick(tab, action.element, action.option),
    ScrollUp: lambda tab, _action, _: _scroll(tab, -1),
    ScrollDown: lambda tab, _action, _: _scroll(tab, 1),
    PressEnter: lambda tab, _action, _: _press_enter(tab),
    SwitchTab: lambda tab, _action, _: _show(tab),
    GoBackward: lambda tab, _action, _: _go(tab, -1),
    GoForward: lambda tab, _action, _: _go(tab, 1),
    PressKey: lambda tab, action, _: _press(tab, action.key),
    Upload: lambda tab, action, _: _upload(tab, action.element, action.files),
    Wait: lambda tab, _action, closing: _wait(tab, closing),
}
