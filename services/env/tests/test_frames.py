"""Frames and shadow roots: seen in their place, numbered with the rest, and acted on."""

import asyncio

import pytest
from aiohttp import web
from playwright.async_api import Error
from webagent.env.v1 import env_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

FORM = (
    "<button onclick='this.textContent=\"clicked\"'>press</button>"
    "<input oninput='document.querySelector(\"p\").textContent = this.value'><p></p>"
)


def elsewhere(service, html: str) -> str:
    """The address of a page on another site, which Chromium gives a process of its own."""
    return service.pages.url.replace("127.0.0.1", "localhost") + "/" + service.pages.write(html)


async def check_form(page, before: str = "", after: str = "") -> None:
    """Clicks and types in the form of a frame, whose numbers begin at 1."""
    assert f'{before}<button id="1">press</button><input id="2"/>{after}' in page.text
    response = await page.click(1)
    assert response.result.status == env_pb2.ACTION_STATUS_OK, response.result.message
    assert '<button id="1">clicked</button>' in page.text
    response = await page.act('do(action="Type", argument="typed", element="2")')
    assert response.result.status == env_pb2.ACTION_STATUS_OK, response.result.message
    assert "<p>typed</p>" in page.text
    assert (await page.click(3)).observation.title == "outer"


async def in_its_own_process(play, service) -> bool:
    """Whether Chromium isolates sites, which depends on the machine and on how it was built."""
    page = await play(f"<iframe src='{elsewhere(service, '<p>x</p>')}'></iframe>")
    tab = await service.pool.get(page.session_id).context.active()
    try:
        await tab.page.context.new_cdp_session(tab.page.frames[1])
    except Error:
        return False
    return True


OUTER = "<button>first</button>{}<button onclick='document.title=\"outer\"'>last</button>"


async def test_a_srcdoc_frame_is_read_and_acted_on(play):
    page = await play(OUTER.format(f'<iframe srcdoc="{FORM.replace(chr(34), "&quot;")}"></iframe>'))
    await check_form(page)


async def test_a_frame_of_another_site_is_read_and_acted_on(play, service):
    address = elsewhere(service, FORM)
    page = await play(OUTER.format(f"<iframe src='{address}' style='padding:7px;border:3px solid'></iframe>"))
    await check_form(page, before="<iframe><body>")


async def test_nested_frames_are_read_and_acted_on(play, service):
    middle = elsewhere(service, f"<p>middle</p><iframe src='/{service.pages.write(FORM)}'></iframe>")
    page = await play(OUTER.format(f"<iframe src='{middle}' width=390 height=220></iframe>"))
    assert "<p>middle</p>" in page.text
    await check_form(page)


async def test_a_sandboxed_frame_is_read_and_acted_on(play, service):
    name = service.pages.write(FORM)
    page = await play(OUTER.format(f"<iframe sandbox='allow-scripts' src='/{name}'></iframe>"))
    await check_form(page)


async def test_a_frame_without_scripts_is_read_and_acted_on(play, service):
    name = service.pages.write("<details><summary>more</summary>inside</details><input>")
    page = await play(OUTER.format(f"<iframe sandbox src='/{name}'></iframe>"), step_timeout={"seconds": 20})
    assert "more" in page.text
    response = await page.act('do(action="Type", argument="typed", element="2")')
    assert response.result.status == env_pb2.ACTION_STATUS_OK, response.result.message
    assert 'data-value="typed"' in page.text


async def test_shadow_roots_within_frames_and_within_each_other_are_read_and_acted_on(play):
    inner = (
        "<x-a></x-a><script>const outer = document.querySelector('x-a').attachShadow({mode: 'open'});"
        "outer.innerHTML = '<x-b><i>slotted</i></x-b>';"
        "const root = outer.querySelector('x-b').attachShadow({mode: 'open'});"
        "root.innerHTML = '<button><slot></slot></button><input>';"
        "root.querySelector('button').onclick = () => parent.postMessage('x', '*')</script>"
    )
    page = await play(
        OUTER.format(f'<iframe srcdoc="{inner}"></iframe>')
        + "<script>onmessage = () => { document.title = 'from within' }</script>"
    )
    assert '<button id="1"><i>slotted</i></button><input id="2"/>' in page.text
    assert (await page.click(1)).observation.title == "from within"
    await page.act('do(action="Type", argument="typed", element="2")')
    assert '<input id="2" data-value="typed"/>' in page.text


async def test_text_in_a_shadow_button_is_clicked(play):
    page = await play(
        "<x-b>Save</x-b><script>const root = document.querySelector('x-b').attachShadow({mode: 'open'});"
        "root.innerHTML = '<button><slot></slot></button>';"
        "root.querySelector('button').onclick = () => { document.title = 'saved' }</script>"
    )
    assert page.text == '<button id="0">Save</button>'
    assert (await page.click(0)).observation.title == "saved"


async def test_a_frame_without_anything_to_act_on_keeps_its_own_number(play):
    page = await play("<iframe srcdoc='<p>only text</p>'></iframe><button>after</button>")
    assert page.text == '<body><iframe id="0"><p>only text</p></iframe><button id="1">after</button></body>'


async def test_what_is_covered_in_a_frame_has_no_number_and_is_not_clicked(play):
    page = await play(
        "<iframe srcdoc='<button>a</button>' style='position:absolute;left:0;top:0'></iframe>"
        "<div style='position:absolute;left:0;top:0;width:300px;height:150px;background:white'></div>"
    )
    assert "<button" not in page.text
    page = await play(
        "<iframe srcdoc='<button>a</button>' style='position:absolute;left:0;top:0'></iframe>"
        "<script>window.cover = () => document.body.insertAdjacentHTML('beforeend',"
        "'<div style=\"position:fixed;inset:0\"></div>')</script>"
    )
    await page.ask("cover()")
    assert (await page.click(0)).result.reason == env_pb2.ACTION_REASON_ELEMENT_COVERED


async def test_a_frame_below_the_fold_is_scrolled_to(play):
    page = await play(
        "<div style='height:200px'>top</div><iframe srcdoc='<div style=\"height:300px\"></div><button>deep</button>'"
        " style='height:600px'></iframe><script>scrollTo(0, 280)</script>"
    )
    assert ">deep<" in page.text
    assert (await page.click(0)).result.status == env_pb2.ACTION_STATUS_OK


async def test_frames_that_come_and_go_while_a_page_is_read_do_no_harm(play):
    page = await play(
        "<button>go</button><div id=d></div><script>let n = 0; setInterval(() => {"
        "d.innerHTML = n++ % 2 ? '' : '<iframe srcdoc=\"<button>in</button>\"></iframe><iframe srcdoc=\"x\"></iframe>'"
        "}, 40)</script>"
    )
    for _ in range(4):
        response = await page.click(0)
        assert response.result.status == env_pb2.ACTION_STATUS_OK
        assert '<button id="0">go</button>' in page.text


async def test_a_frame_that_navigates_is_read_anew(play, service):
    name = service.pages.write("<p>second</p>")
    page = await play(f"<iframe srcdoc='<a href=\"/{name}\">next</a>'></iframe>")
    assert ">next</a>" in page.text
    await page.click(0)
    assert "<p>second</p>" in page.text
    assert "next" not in page.text


async def test_an_element_of_a_removed_frame_is_gone(play):
    page = await play("<iframe srcdoc='<button>a</button>'></iframe><p>text</p>")
    await page.ask("void document.querySelector('iframe').remove()")
    response = await page.click(0)
    assert response.result.status == env_pb2.ACTION_STATUS_FAILED
    assert "<p>text</p>" in page.text


@pytest.mark.slow
async def test_a_frame_that_hangs_does_not_hold_the_page_up(play, service):
    if not await in_its_own_process(play, service):
        pytest.skip("this Chromium gives a frame of another site no process of its own")
    address = elsewhere(service, "<p>busy</p><script>addEventListener('message', () => { while (true); })</script>")
    page = await play(
        f'<button onclick=\'document.querySelector("iframe").contentWindow.postMessage(1, "*")\'>go</button>'
        f"<iframe src='{address}'></iframe>"
    )
    response = await page.click(0)
    assert '<button id="0">go</button>' in response.observation.text


async def test_a_dialog_in_a_frame_is_answered_and_told_of(play):
    page = await play("<iframe srcdoc='<button onclick=\"alert(1 + 1)\">ask</button>'></iframe>")
    response = await page.click(0)
    assert [(d.type, d.message, d.accepted) for d in response.observation.dialogs] == [("alert", "2", True)]


async def test_a_tree_of_roles_holds_frames_too(play):
    page = await play(
        "<button>a</button><iframe title='Inner' srcdoc='<button>b</button>'></iframe><button>c</button>",
        observations=[env_pb2.OBSERVATION_KIND_AXTREE],
    )
    assert page.opened.observation.axtree.splitlines() == [
        '[0] button "a"',
        'Iframe "Inner"',
        '  [1] button "b"',
        '[2] button "c"',
    ]


async def test_a_request_of_a_frame_is_waited_for(play, service):
    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(0.5)
        return web.Response(text="answer", headers={"Access-Control-Allow-Origin": "*"})

    service.pages.handlers["slow"] = slow
    address = elsewhere(
        service,
        f'<button onclick=\'fetch("{service.pages.url}/slow").then((r) => r.text())'
        '.then((t) => { document.querySelector("p").textContent = t })\'>go</button><p></p>',
    )
    page = await play(f"<iframe src='{address}'></iframe>")
    assert "<p>answer</p>" in (await page.click(0)).observation.text
