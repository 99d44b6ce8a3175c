"""Tabs that open and close, and dialogs that stop a page."""

import pytest
from webagent.env.v1 import env_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(
    "how", ["<a target='_blank' href='/{0}'>open</a>", "<button onclick='window.open(\"/{0}\")'>open</button>"]
)
async def test_a_new_tab_is_followed_and_can_be_left(play, service, how):
    other = service.pages.write("<title>Other</title><p>other</p>")
    page = await play(how.format(other))
    response = await page.click(0)
    assert response.observation.text == "<p>other</p>"
    assert [(tab.title, tab.active) for tab in response.observation.tabs] == [("", False), ("Other", True)]
    await page.act('do(action="Switch Tab", argument="0")')
    assert ">open<" in page.text
    response = await page.act('do(action="Switch Tab", argument="2")')
    assert response.result.reason == env_pb2.ACTION_REASON_NOWHERE_TO_GO


async def test_a_popup_that_closes_itself_leaves_the_first_tab(play, service):
    other = service.pages.write("<script>close()</script>")
    page = await play(f"<button onclick='window.open(\"/{other}\")'>open</button>")
    response = await page.click(0)
    assert ">open<" in response.observation.text
    assert len(response.observation.tabs) == 1


async def test_closing_the_active_tab_returns_to_the_one_before(play, service):
    other = service.pages.write("<button onclick='window.close()'>close me</button>")
    page = await play(f"<button onclick='window.open(\"/{other}\")'>open</button>")
    await page.click(0)
    assert "close me" in page.text
    await page.click(0)
    assert ">open<" in page.text


@pytest.mark.parametrize("event", ["onmousedown", "onkeydown"])
async def test_a_tab_that_closes_itself_amid_an_action_returns_to_the_one_before(play, service, event):
    other = service.pages.write(f"<input {event}='window.close()'>")
    page = await play(f"<button onclick='window.open(\"/{other}\")'>open</button>")
    await page.click(0)
    response = await page.act('do(action="Type", argument="a longer text", element="0")')
    assert ">open<" in response.observation.text
    assert len(response.observation.tabs) == 1


@pytest.mark.slow
async def test_closing_the_last_tab_leaves_an_empty_one(play, service):
    page = await play("<button onclick='close()'>leave</button>")
    tab = await service.pool.get(page.session_id).context.active()
    assert "leave" in (await page.click(0)).observation.text  # a page may not close what no page opened
    await tab.page.close()
    assert [(tab.url, tab.active) for tab in (await page.observe()).tabs] == [("about:blank", True)]
    assert (await page.act('do(action="Click", element="0")')).result.status == env_pb2.ACTION_STATUS_REJECTED
    assert (await page.act('do(action="Scroll Down")')).result.status == env_pb2.ACTION_STATUS_OK


@pytest.mark.parametrize(
    ("script", "kind", "effect"),
    [
        ("alert('Stop <b>')", "alert", ""),
        ("document.title = confirm('Sure?')", "confirm", "true"),
        ("document.title = prompt('Name?', 'Ann')", "prompt", "Ann"),
    ],
)
async def test_a_dialog_is_answered_and_told_of(play, script, kind, effect):
    page = await play(f'<button onclick="{script}">go</button>')
    response = await page.click(0)
    assert response.observation.title == effect
    first = response.observation.text.splitlines()[0]
    assert first.startswith(f'<dialog type="{kind}" data-status="accepted">')
    assert "<b>" not in first
    assert "<dialog" not in (await page.observe()).text


async def test_a_dialog_while_loading_does_not_stop_the_task(play):
    page = await play("<p>after</p><script>alert('welcome')</script>")
    assert "welcome" in page.text
    assert "<p>after</p>" in page.text


async def test_leaving_a_page_that_asks_to_stay_works(play, service):
    other = service.pages.write("<p>other</p>")
    page = await play(
        f"<a href='/{other}'>leave</a><input>"
        "<script>addEventListener('beforeunload', (e) => e.preventDefault())</script>"
    )
    await page.act('do(action="Type", argument="x", element="1")')
    await page.click(0)
    assert page.text == "<p>other</p>"


@pytest.mark.slow
async def test_dialogs_without_end_are_all_answered_and_the_first_told(play):
    page = await play("<button onclick='for (let i = 0; i < 30; i++) alert(i); document.title = 1'>go</button>")
    response = await page.click(0)
    assert response.observation.title == "1"
    assert [dialog.message for dialog in response.observation.dialogs] == ["0", "1", "2", "3", "4"]


@pytest.mark.slow
async def test_a_dialog_stops_neither_a_screenshot_nor_a_popup(play, service):
    other = service.pages.write("<p>other</p><script>alert('hello')</script>")
    page = await play(
        f"<button onclick='setTimeout(alert, 0, 1); window.open(\"/{other}\")'>go</button>",
        observations=[env_pb2.OBSERVATION_KIND_SCREENSHOT, env_pb2.OBSERVATION_KIND_SIMPLIFIED_HTML],
    )
    response = await page.click(0)
    assert response.observation.screenshot
    assert {dialog.message for dialog in response.observation.dialogs} == {"1", "hello"}
    assert "<p>other</p>" in response.observation.text


async def test_half_characters_of_pages_are_replaced(play, service):
    half = "<title>a</title><p id='p'></p><script>document.title += p.textContent = '\\ud83d'</script>"
    opener = "<a target=x onclick='alert(document.title)' href='/{0}'>o</a><script>document.title = '\\ud83d!'</script>"
    page = await play(opener.format(service.pages.write(half)))
    response = await page.click(0)
    assert response.observation.text.endswith("<p>�</p>")
    assert [dialog.message for dialog in response.observation.dialogs] == ["�!"]
    assert [tab.title for tab in response.observation.tabs] == ["�!", "a�"]


async def test_a_title_is_cut_before_it_can_burst_a_message(play):
    page = await play("<button onclick='document.title = \"x\".repeat(5000000)'>grow</button>")
    assert (await page.click(0)).observation.title == "x" * 500
