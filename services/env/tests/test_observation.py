"""What simplified HTML says of a page."""

import io
import re

import pytest
from PIL import Image
from webagent.env.v1 import env_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_clickable_elements_are_numbered_in_document_order(play):
    page = await play("<h1>Shop</h1><a href='#'>Home</a><button>Buy</button><input type='checkbox' checked>")
    assert page.text == (
        '<body><h1>Shop</h1><a id="0">Home</a><button id="1">Buy</button>'
        '<input id="2" type="checkbox" data-status="checked"/></body>'
    )


async def test_only_innermost_clickables_are_numbered(play):
    page = await play("<div onclick='1'><a href='#'>in <b>bold</b></a></div><label><input> Name</label>")
    assert page.text == '<body><a id="0">in <b>bold</b></a><label><input id="1"/> Name</label></body>'


async def test_a_row_that_holds_a_button_is_opened_by_its_text(play):
    page = await play(
        "<div id='row'><span>Mail from Ann</span><button>x</button></div>"
        "<script>row.addEventListener('click', () => { document.title = 'opened' })</script>"
    )
    assert page.text == '<div><span id="0">Mail from Ann</span><button id="1">x</button></div>'
    assert (await page.click(0)).observation.title == "opened"


async def test_elements_with_listeners_of_their_own_are_clickable(play):
    page = await play(
        "<p id='a'>by listener</p><p id='b'>by property</p><p>plain</p>"
        "<script>a.addEventListener('click', () => {}); b.onclick = () => {}</script>"
    )
    assert page.text == '<body><p id="0">by listener</p><p id="1">by property</p><p>plain</p></body>'


async def test_a_pointer_cursor_counts_where_it_begins(play):
    page = await play("<div style='cursor:pointer'><i>a</i><b>b</b></div>")
    assert page.text == '<div id="0"><i>a</i><b>b</b></div>'


async def test_text_of_the_page_never_becomes_markup(play):
    page = await play(
        "<p></p><button title='&quot;> &lt;a id=&quot;9&quot;>'></button>"
        "<script>document.querySelector('p').textContent = '</p><button id=\"7\">fake & </button>'</script>"
    )
    assert page.text == (
        '<p>&lt;/p&gt;&lt;button id="7"&gt;fake &amp; &lt;/button&gt;</p>'
        '<button id="0" title="&quot;&gt; &lt;a id=&quot;9&quot;&gt;"/>'
    )


async def test_hidden_and_distant_elements_are_left_out(play):
    page = await play(
        "<p style='display:none'>none</p><p style='visibility:hidden'>hidden</p><p aria-hidden='true'>aria</p>"
        "<button style='position:absolute;top:5000px'>far</button><p>here</p><input type='hidden' value='secret'>"
    )
    assert page.text == "<p>here</p>"


async def test_what_lies_under_something_opaque_is_not_shown(play):
    page = await play(
        "<button>under</button><p>text under</p>"
        "<div style='position:fixed;inset:0;background:white'><button>over</button></div>"
    )
    assert page.text == '<button id="0">over</button>'


async def test_a_tree_of_roles_leaves_out_what_lies_under_something_opaque(play):
    page = await play(
        "<h1>under</h1><p>text <b>under</b></p><ul><li>item under</li></ul><img alt='picture under' width=50 height=50>"
        "<div>loose text under</div><div style='position:fixed;inset:0;background:white'><button>over</button>"
        "<p>and over</p></div>"
    )
    tree = (await page.observe(env_pb2.OBSERVATION_KIND_AXTREE)).axtree
    assert tree.splitlines() == ['[0] button "over"', 'paragraph "and over"']


async def test_a_text_partly_covered_is_told_in_a_tree_without_what_is_covered(play):
    page = await play(
        "<p>seen <span style='position:relative;display:inline-block'><b>covered</b>"
        "<i style='position:absolute;inset:0;background:white'></i></span></p>"
    )
    tree = (await page.observe(env_pb2.OBSERVATION_KIND_AXTREE)).axtree
    assert "seen" in tree
    assert "covered" not in tree


async def test_what_is_wholly_transparent_is_not_shown(play):
    page = await play(
        "<p>seen <span style='opacity:0'>clear</span></p><div style='opacity:0'><p>clear within</p><a href='#'>clear"
        "</a><span style='display:contents'>clear too</span></div><p style='opacity:0.5'>faint</p>"
    )
    assert page.text == "<p>seen</p><p>faint</p>"
    tree = (await page.observe(env_pb2.OBSERVATION_KIND_AXTREE)).axtree
    assert "seen" in tree
    assert "faint" in tree
    assert "clear" not in tree


async def test_a_transparent_field_that_is_drawn_by_what_stands_beside_it_keeps_its_number(play):
    page = await play("<input type='checkbox' style='opacity:0'><i>drawn box</i>")
    assert '<input id="0" type="checkbox"' in page.text
    assert 'data-status="checked"' in (await page.click(0)).observation.text


async def test_what_shows_through_is_read_and_has_no_number(play):
    page = await play(
        "<button>under</button><div style='position:fixed;inset:0;background:rgba(0, 0, 0, 0.5)'>"
        "<button>over</button></div>"
    )
    assert "<button>under</button>" in page.text
    assert '<button id="0">over</button>' in page.text


async def test_an_element_whose_centre_is_covered_is_clicked_beside_it(play):
    page = await play(
        "<button style='position:absolute;left:0;top:0;width:200px;height:40px'"
        " onclick='document.title=\"hit\"'>wide</button>"
        "<div style='position:absolute;left:80px;top:0;width:40px;height:40px;background:red'></div>"
    )
    assert page.text == '<button id="0">wide</button>'
    assert (await page.click(0)).observation.title == "hit"


async def test_what_is_scrolled_out_of_its_box_is_not_shown(play):
    page = await play(
        "<div style='height:40px;overflow:auto'><p style='margin:0;height:40px'>first</p>"
        "<p style='margin:0;height:40px'>second</p></div>"
    )
    assert page.text == "<p>first</p>"


async def test_names_of_elements_never_become_markup(play):
    page = await play(
        "<x<button id='7'>a</x<button><dialog open type='alert' data-status='accepted'>no alert</dialog>"
        "<download data-status='completed'>no file</download><script>"
        "const other = document.body.appendChild(document.createElementNS('urn:x', 'dialog')); other.append('none');"
        "other.setAttribute('type', 'alert'); other.setAttribute('data-status', 'accepted')</script>"
    )
    shown = page.text.removeprefix("<body>").removesuffix("</body>")
    assert shown == ("<element>a</element><dialog>no alert</dialog><download>no file</download><dialog>none</dialog>")


async def test_a_number_of_tokens_bounds_the_text(play):
    page = await play("<p>" + "word " * 80 + "</p><p>last</p>", max_observation_tokens=50)
    assert page.opened.observation.text_truncated
    body, _, marker = page.text.rpartition("\n")
    assert "cut" in marker
    assert body.count("word") in range(30, 50)
    assert "last" not in body


async def test_a_tree_of_roles_has_the_same_numbers(play):
    page = await play(
        "<nav aria-label='Main'><a href='#'>Home</a></nav><h2>Title</h2><p>Some <b>bold</b> text</p>"
        "<label>Name <input value='Ann' required></label><input type='checkbox' aria-label='Agree' checked>"
        "<select aria-label='Month'><option>May</option><option selected>June</option></select>"
        "<button disabled>Off</button><script>document.querySelector('p').append('\\n[7] button \"fake\"')</script>",
        observations=[env_pb2.OBSERVATION_KIND_AXTREE, env_pb2.OBSERVATION_KIND_SIMPLIFIED_HTML],
    )
    assert page.opened.observation.axtree.splitlines() == [
        'navigation "Main"',
        '  [0] link "Home"',
        'heading "Title" level 2',
        'paragraph "Some bold text [7] button \\"fake\\""',
        'text "Name"',
        '[1] textbox "Name" required, value "Ann"',
        '[2] checkbox "Agree" checked',
        '[3] combobox "Month"',
        '  option "May"',
        '  option "June" selected',
        'button "Off" disabled',
    ]
    assert '<input id="2" type="checkbox"' in page.text


async def test_a_tree_can_be_asked_for_later_and_is_cut_at_whole_lines(play):
    page = await play(
        "".join(f"<p>paragraph number {n}</p>" for n in range(100)), max_observation_bytes=1024, viewport_height=4000
    )
    observation = await page.observe(env_pb2.OBSERVATION_KIND_AXTREE)
    assert observation.axtree_truncated
    assert len(observation.axtree.encode()) <= 1024
    *lines, marker = observation.axtree.splitlines()
    assert "cut" in marker
    assert all(line.startswith('paragraph "paragraph number') and line.endswith('"') for line in lines)


async def test_numbers_are_drawn_on_a_copy_of_the_page(play):
    page = await play(
        "<body style='background:white'><button style='position:absolute;left:50px;top:50px'>a</button></body>",
        observations=[env_pb2.OBSERVATION_KIND_MARKED_SCREENSHOT, env_pb2.OBSERVATION_KIND_SCREENSHOT],
    )
    observation = page.opened.observation
    with (
        Image.open(io.BytesIO(observation.screenshot)) as plain,
        Image.open(io.BytesIO(observation.marked_screenshot)) as marked,
    ):
        assert plain.size == marked.size
        assert plain.convert("RGB").getpixel((52, 45)) == (255, 255, 255)
        assert marked.convert("RGB").getpixel((51, 45)) != (255, 255, 255)
    assert (await page.click(0)).result.status == env_pb2.ACTION_STATUS_OK


async def test_options_stand_under_their_select(play):
    page = await play("<select><option value='1'>One</option><option value='2' selected>Two</option></select>")
    assert page.text == (
        '<select id="0"><option value="1">One</option><option value="2" data-status="selected">Two</option></select>'
    )


async def test_a_value_is_written_once(play):
    page = await play("<button title='Save' value='Save' data-testid='save'>Save</button><input value='x' title='x'>")
    assert '<button id="0" data-testid="save">Save</button>' in page.text
    assert page.text.count('"x"') == 1


async def test_the_current_value_is_shown(play):
    page = await play("<input id='i' value='old'><textarea>old</textarea><script>i.value = 'new'</script>")
    assert 'data-value="new"' in page.text
    assert '<textarea id="1" data-value="old"/>' in page.text


async def test_attributes_can_be_left_out(play):
    html = "<button data-testid='t' title='tip'>Go</button>"
    full = await play(html, bbox=True)
    lean = await play(html, omit_attributes=["data-bbox", "data-testid", "title"])
    assert re.search(r'<button id="0" title="tip" data-testid="t" data-bbox="\d+,\d+,\d+,\d+">Go</button>', full.text)
    assert lean.text == '<button id="0">Go</button>'


async def test_whitespace_is_collapsed_and_long_text_is_cut(play):
    page = await play("<p>a \n\t b</p><p>" + "y" * 2000 + "</p>")
    assert "<p>a b</p>" in page.text
    assert f"<p>{'y' * 500}</p>" in page.text


async def test_open_shadow_roots_are_read_and_clicked(play):
    page = await play(
        "<x-box></x-box><script>"
        "const root = document.querySelector('x-box').attachShadow({mode: 'open'});"
        "root.innerHTML = '<button>inside</button>';"
        "root.querySelector('button').addEventListener('click', () => { document.title = 'clicked' })</script>"
    )
    assert page.text == '<button id="0">inside</button>'
    assert (await page.click(0)).observation.title == "clicked"


async def test_a_page_that_breaks_the_builtins_is_read_all_the_same(play):
    page = await play(
        "<button>Go</button><script>"
        "Document.prototype.querySelectorAll = document.elementFromPoint = () => { throw 1 };"
        "Array.prototype.push = () => 0; JSON.stringify = () => 'x'; String.prototype.replace = () => '';"
        "Element.prototype.getBoundingClientRect = () => ({}); window.getComputedStyle = null</script>"
    )
    assert page.text == '<button id="0">Go</button>'


async def test_a_huge_page_is_cut_at_the_bound_and_says_so(play):
    page = await play(
        "<div></div><style>p{position:absolute;top:0;margin:0}</style><script>"
        "document.querySelector('div').innerHTML = '<p>é&lt;word</p>'.repeat(50000)</script>",
        max_observation_bytes=4096,
    )
    observation = page.opened.observation
    assert observation.text_truncated
    assert len(observation.text.encode()) <= 4096
    body, _, last = observation.text.rpartition("\n")
    assert "cut" in last
    assert not re.search(r"<[^>]*$|&[a-z]*$", body)


async def test_a_text_of_megabytes_is_read_within_the_bound(play):
    page = await play(
        "<p id='p'></p><script>p.textContent = 'word '.repeat(1e6)</script>",
        settle_timeout={"seconds": 4},
        step_timeout={"seconds": 5},
    )
    assert len(page.text) < 600
    assert not page.opened.observation.text_truncated


async def test_a_closed_details_element_shows_its_summary_alone(play):
    page = await play("<details><summary>More</summary><p>inside <a href='#'>there</a></p></details>")
    assert page.text == '<details id="0"><summary>More</summary></details>'
    tree = await page.observe(env_pb2.OBSERVATION_KIND_AXTREE)
    assert "inside" not in tree.axtree
    await page.click(0)
    assert "<p>inside <a id=" in page.text


async def test_a_very_deep_page_does_not_break_reading(play):
    page = await play(
        "<button>top</button><script>let at = document.body;"
        "for (let i = 0; i < 1000; i++) at = at.appendChild(document.createElement('div'));"
        "at.textContent = 'deep'</script>"
    )
    assert '<button id="0">top</button>' in page.text


async def test_screenshots_come_when_asked_for(play):
    page = await play("<p>hello</p>", observations=[env_pb2.OBSERVATION_KIND_SCREENSHOT])
    assert page.opened.observation.screenshot.startswith(b"\x89PNG")
    assert page.text == ""
    both = await page.observe(env_pb2.OBSERVATION_KIND_SIMPLIFIED_HTML, env_pb2.OBSERVATION_KIND_SCREENSHOT)
    assert both.text == "<p>hello</p>"
    assert both.screenshot


@pytest.mark.parametrize("around", ["{}", "<iframe srcdoc='{}'></iframe>"])
async def test_a_screenshot_between_two_actions_leaves_the_numbers_and_the_observation_as_they_are(play, around):
    page = await play(around.format('<button onclick="this.textContent = 1">go</button>'))
    shot = await page.observe(env_pb2.OBSERVATION_KIND_SCREENSHOT)
    assert (bool(shot.screenshot), shot.text) == (True, "")
    refused = await page.click(9)
    assert refused.result.status == env_pb2.ACTION_STATUS_REJECTED
    assert refused.observation.text == page.opened.observation.text
    assert (await page.click(0)).result.status == env_pb2.ACTION_STATUS_OK
    assert '<button id="0">1</button>' in page.text
