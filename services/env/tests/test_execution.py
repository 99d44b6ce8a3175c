"""What actions do to a page."""

import asyncio
import json

import pytest
from aiohttp import web
from webagent.env.v1 import env_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

TIMEOUT = 30.0
OK, FAILED, REJECTED = env_pb2.ACTION_STATUS_OK, env_pb2.ACTION_STATUS_FAILED, env_pb2.ACTION_STATUS_REJECTED
LOG = (
    "<p id='log' style='position:fixed;top:200px'></p>"
    "<script>const say = (what) => { log.textContent += what + ' ' }</script>"
)


async def test_a_click_is_real_mouse_input(play):
    page = await play(
        LOG + "<button id='b'>Go</button><script>"
        "for (const t of ['mousedown', 'mouseup', 'click']) b.addEventListener(t, (e) => say(t + e.isTrusted))</script>"
    )
    response = await page.click(0)
    assert response.result.status == OK
    assert response.result.action.click.element == "0"
    assert "mousedowntrue mouseuptrue clicktrue" in page.text


async def test_a_right_click_asks_for_the_context_menu(play):
    page = await play("<button id='b'>Go</button><script>b.oncontextmenu = () => { document.title = 'menu' }</script>")
    response = await page.act('do(action="Right Click", element="0")')
    assert response.observation.title == "menu"


async def test_typing_replaces_the_text_by_real_keys(play):
    page = await play(
        LOG + "<input id='i' value='old text'><script>"
        "i.onkeydown = (e) => say(e.key); i.oninput = (e) => say(e.isTrusted)</script>"
    )
    response = await page.act('do(action="Type", argument="hi", element="0")')
    assert response.result.status == OK
    assert 'data-value="hi"' in page.text
    assert "h true i true" in page.text


async def test_typing_nothing_clears_the_field(play):
    page = await play("<input value='old'>")
    await page.act('do(action="Type", argument="", element="0")')
    assert page.text == '<input id="0"/>'


async def test_long_and_foreign_text_arrives_whole(play):
    page = await play("<textarea></textarea>")
    text = "naïve 東京 😀 " * 40
    await page.act(f'do(action="Type", argument="{text}", element="0")')
    assert await page.ask("document.querySelector('textarea').value") == json.dumps(text)


async def test_typing_into_an_editable_region_works(play):
    page = await play("<div contenteditable='true'>old</div>")
    await page.act('do(action="Type", argument="new", element="0")')
    assert page.text == '<div id="0">new</div>'


async def test_dates_and_times_are_entered_as_people_write_them(play):
    page = await play("<input type='date'><input type='time'>")
    await page.act('do(action="Type", argument="07/26/2017", element="0")')
    await page.act('do(action="Type", argument="6:01 PM", element="1")')
    assert 'data-value="2017-07-26"' in page.text
    assert 'data-value="18:01"' in page.text
    response = await page.act('do(action="Type", argument="soon", element="0")')
    assert response.result.status == FAILED


async def test_search_types_and_presses_enter(play):
    page = await play("<form onsubmit='document.title = this.q.value; return false'><input name='q'></form>")
    response = await page.act('do(action="Search", argument="LAX", element="0")')
    assert response.observation.title == "LAX"


async def test_enter_goes_where_the_focus_is(play):
    page = await play("<form onsubmit='document.title = \"sent\"; return false'><input autofocus></form>")
    await page.click(0)
    assert (await page.act('do(action="Press Enter")')).observation.title == "sent"


async def test_hovering_opens_what_hovering_opens(play):
    page = await play(
        "<style>.s{display:none}.m:hover .s{display:block}</style>"
        "<div class='m' tabindex='0'>Menu<a class='s' href='#'>Item</a></div>"
    )
    assert "Item" not in page.text
    await page.act('do(action="Hover", element="0")')
    assert '<a id="0">Item</a>' in page.text


async def test_scrolling_moves_by_two_thirds_of_the_viewport(play):
    page = await play("<div style='height:2000px'>top</div>")
    await page.act('do(action="Scroll Down")')
    assert await page.ask("scrollY") == "200"
    await page.act('do(action="Scroll Up")')
    assert await page.ask("scrollY") == "0"


async def test_an_option_is_picked_by_equal_text_before_contained_text(play):
    page = await play(
        "<select onchange='document.title = this.value'><option>-</option><option value='12'>12 May</option>"
        "<option value='m'>May</option><option value='j'>June</option></select>"
    )
    assert (await page.act('do(action="Select Dropdown Option", argument="may", element="0")')).observation.title == "m"
    assert (await page.act('do(action="Select Dropdown Option", argument="Jun", element="0")')).observation.title == "j"
    response = await page.act('do(action="Select Dropdown Option", argument="March", element="0")')
    assert (response.result.status, response.result.reason) == (FAILED, env_pb2.ACTION_REASON_NO_SUCH_OPTION)


async def test_what_cannot_be_done_fails_and_says_why(play):
    page = await play(
        "<button id='go'>a</button><button>b</button><button>c</button><select><option>x</option></select>"
        "<script>addEventListener('mousemove', () => {}); const [a, b, c] = document.querySelectorAll('button');"
        "setInterval(() => { if (document.title === 'now') { a.remove(); b.disabled = true; c.insertAdjacentHTML("
        "'afterend', '<i style=\"position:fixed;inset:0\">cover</i>'); document.title = 'done' } }, 20)</script>"
    )
    await page.ask("document.title = 'now'")
    await page.ask(
        "new Promise((ok) => { const at = setInterval(() => document.title === 'done' && ok(clearInterval(at)), 5) })"
    )
    seen = [(await page.click(0)).result]
    assert (seen[0].status, seen[0].reason) == (FAILED, env_pb2.ACTION_REASON_ELEMENT_GONE)
    assert "gone" in seen[0].message
    page = await play("<button disabled>off</button><button>on</button><input readonly>")
    response = await page.act('do(action="Type", argument="x", element="0")')
    assert "cannot be typed into" in response.result.message
    response = await page.act('do(action="Type", argument="x", element="1")')
    assert "read-only" in response.result.message


async def test_a_covered_element_is_not_clicked(play):
    page = await play(
        "<button onclick='document.title=\"hit\"'>a</button>"
        "<script>window.cover = () => document.body.insertAdjacentHTML('beforeend',"
        "'<div style=\"position:fixed;inset:0\"></div>')</script>"
    )
    await page.ask("cover()")
    response = await page.click(0)
    assert response.result.reason == env_pb2.ACTION_REASON_ELEMENT_COVERED
    assert "covered by <div>" in response.result.message
    assert response.observation.title != "hit"


async def test_an_unknown_element_is_rejected_without_touching_the_page(play):
    page = await play(
        "<button>a</button>" + LOG + "<script>addEventListener('mousedown', () => say('touched'))</script>"
    )
    before = page.opened.observation
    response = await page.click(5)
    assert response.result.status == REJECTED
    assert response.result.reason == env_pb2.ACTION_REASON_UNKNOWN_ELEMENT
    assert response.observation == before
    assert "touched" not in (await page.observe()).text


async def test_a_malformed_action_is_rejected_and_uses_up_a_step(play):
    page = await play("<button>a</button>")
    response = await page.act("click the button")
    assert response.result.status == REJECTED
    assert response.result.reason == env_pb2.ACTION_REASON_MALFORMED
    assert not response.result.HasField("action")
    assert response.observation == page.opened.observation
    assert (await page.click(0)).step_index == 1


async def test_typed_actions_do_the_same(play):
    page = await play("<input>")
    request = env_pb2.StepRequest(session_id=page.session_id)
    request.action.type.element = "0"
    request.action.type.text = "typed"
    response = await page.service.environment.Step(request, timeout=20)
    assert 'data-value="typed"' in response.observation.text


async def test_exit_ends_the_episode(play):
    page = await play("<button>a</button>")
    response = await page.act('exit(message="42")')
    assert response.terminated
    assert response.result.action.exit.message == "42"


async def test_wait_lets_the_page_work_for_a_second(play):
    page = await play(
        "<p>early</p><script>setTimeout(() => document.querySelector('p').textContent = 'late', 1100)</script>"
    )
    while "late" not in page.text:
        assert (await page.act('do(action="Wait")')).result.status == OK
        assert page.index < 5


async def test_history_goes_back_and_forward_but_not_before_the_task(play, service):
    second = service.pages.write("<p>second</p>")
    page = await play(f"<a href='/{second}'>next</a>")
    await page.click(0)
    assert page.text == "<p>second</p>"
    await page.act("go_backward()")
    assert "next" in page.text
    await page.act("go_forward()")
    assert page.text == "<p>second</p>"
    await page.act("go_backward()")
    response = await page.act("go_backward()")
    assert response.result.reason == env_pb2.ACTION_REASON_NOWHERE_TO_GO
    assert "next" in page.text


async def test_a_key_is_pressed_with_its_modifiers(play):
    page = await play(
        LOG + "<script>addEventListener('keydown', (e) => say([e.key, e.ctrlKey, e.shiftKey].join(' ')))</script>"
    )
    response = await page.act('do(action="Press Key", argument="Control+Shift+ArrowLeft")')
    assert response.result.action.press_key.key == "Control+Shift+ArrowLeft"
    assert "ArrowLeft true true" in page.text


async def test_an_address_is_opened_only_where_the_session_allows_it(play, service):
    other = f"{service.pages.url}/{service.pages.write('<p>other</p>')}"
    page = await play("<p>here</p>")
    response = await page.act(f'do(action="Goto", argument="{other}")')
    assert (response.result.status, response.result.reason) == (REJECTED, env_pb2.ACTION_REASON_NOT_ALLOWED)
    page = await play("<p>here</p>", allow_goto=True)
    response = await page.act(f'do(action="Goto", argument="{other}")')
    assert response.observation.text == "<p>other</p>"
    assert response.effect.url_changed
    response = await page.act('do(action="Goto", argument="http://example.com/")')
    assert (response.result.status, response.result.reason) == (FAILED, env_pb2.ACTION_REASON_NOT_ALLOWED)
    await page.act("go_backward()")
    assert page.text == "<p>here</p>"


async def test_an_address_that_does_not_load_is_the_actions_failure(play, service):
    async def cut(request: web.Request) -> web.Response:
        request.transport.abort()
        return web.Response()

    service.pages.handlers["cut"] = cut
    page = await play("<p>here</p>", allow_goto=True)
    response = await page.act(f'do(action="Goto", argument="{service.pages.url}/cut")')
    assert (response.result.status, response.result.reason) == (FAILED, env_pb2.ACTION_REASON_NOT_LOADED)


async def test_an_address_that_does_not_answer_is_given_up_within_the_sessions_bound_on_a_step(play, service):
    answered = asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        await answered.wait()
        return web.Response()

    service.pages.handlers["slow"] = slow
    bounds = {"step_timeout": {"seconds": 6}, "settle_timeout": {"seconds": 2}}
    page = await play("<p>here</p>", allow_goto=True, **bounds)
    response = await page.act(f'do(action="Goto", argument="{service.pages.url}/slow")')
    answered.set()
    assert (response.result.status, response.result.reason) == (FAILED, env_pb2.ACTION_REASON_NOT_LOADED)
    assert "no answer in 2 s" in response.result.message
    assert page.text == "<p>here</p>"


async def upload(page, element: str, *files: env_pb2.Action.File) -> env_pb2.StepResponse:
    request = env_pb2.StepRequest(session_id=page.session_id, step_index=page.index)
    request.action.upload.element = element
    request.action.upload.files.extend(files)
    page.index += 1
    return await page.service.environment.Step(request, timeout=TIMEOUT)


async def test_given_files_are_uploaded(play):
    page = await play(
        "<p></p><label><input type='file' multiple onchange='Promise.all([...this.files].map((f) => f.text()))"
        '.then((texts) => { document.querySelector("p").textContent = [this.files[0].name, ...texts] })\'>pick</label>'
    )
    response = await page.click(0)
    assert response.result.reason == env_pb2.ACTION_REASON_NOT_INTERACTABLE
    file = env_pb2.Action.File
    response = await upload(page, "0", file(name="a b.txt", content=b"first"), file(name="c", content=b"second"))
    assert response.result.status == OK
    assert "<p>a b.txt,first,second</p>" in response.observation.text
    assert [each.content for each in response.result.action.upload.files] == [b"", b""]
    response = await upload(page, "0", file(name="../escape", content=b"x"))
    assert (response.result.status, response.result.reason) == (REJECTED, env_pb2.ACTION_REASON_BAD_ARGUMENT)
    response = await upload(page, "0", file(name="big", content=bytes(17 * 2**20)))
    assert response.result.reason == env_pb2.ACTION_REASON_TOO_LONG


async def test_a_disabled_option_has_a_reason_of_its_own(play):
    page = await play("<select><option>May</option><option disabled>June</option></select>")
    response = await page.act('do(action="Select Dropdown Option", argument="June", element="0")')
    assert (response.result.status, response.result.reason) == (FAILED, env_pb2.ACTION_REASON_OPTION_DISABLED)


async def test_what_a_step_changed_is_told(play):
    page = await play("<button onclick='alert(1)'>ask</button><a href='#x'>link</a><button>idle</button>")
    effects = [(await page.click(n)).effect for n in (2, 1, 0)]
    assert [(e.url_changed, e.tabs_changed, e.dialog_opened) for e in effects] == [
        (False, False, False),
        (True, False, False),
        (False, False, True),
    ]
