"""Downloads: kept apart by session, bounded, told of, and deleted with the session."""

import pytest
from aiohttp import web
from webagent.env.v1 import env_pb2
from webagent_env.config import DownloadsConfig, SessionsConfig

pytestmark = pytest.mark.asyncio(loop_scope="session")

COMPLETED, REFUSED = env_pb2.DOWNLOAD_STATE_COMPLETED, env_pb2.DOWNLOAD_STATE_REFUSED


def gives(service, name: str, content: bytes) -> str:
    """The path of a file that the site has saved rather than shown."""

    async def give(_: web.Request) -> web.Response:
        return web.Response(body=content, headers={"Content-Disposition": f'attachment; filename="{name}"'})

    service.pages.handlers[name] = give
    return f"/{name}"


def directory(page):
    return page.service.pool.get(page.session_id).context.scratch.downloads


def kept(page) -> list[bytes]:
    return [path.read_bytes() for path in directory(page).glob("*")]


async def told(page, response) -> list[env_pb2.Download]:
    """The downloads of a response or, where none had begun by then, of those after it."""
    while not (response.effect.downloaded or page.index > 20):
        response = await page.act('do(action="Wait")')
    return list(response.observation.downloads)


async def test_a_download_is_told_of_and_kept_as_long_as_its_session(play, service):
    page = await play(f"<a href='{gives(service, 'list.csv', b'a,b')}'>save</a>")
    other = await play("<button>idle</button>")
    response = await page.click(0)
    (one,) = await told(page, response)
    assert (one.name, one.size, one.state, one.url) == ("list.csv", 3, COMPLETED, f"{service.pages.url}/list.csv")
    assert page.text == '<download data-status="completed">list.csv</download>\n<a id="0">save</a>'
    assert not response.effect.url_changed
    assert kept(page) == [b"a,b"]
    assert not (await page.act('do(action="Scroll Down")')).effect.downloaded
    assert not (await other.click(0)).effect.downloaded
    assert not directory(other).exists()
    place = directory(page)
    await service.environment.CloseSession(env_pb2.CloseSessionRequest(session_id=page.session_id), timeout=20)
    assert not place.exists()


async def test_a_window_that_was_opened_for_a_download_is_closed(play, service):
    page = await play(f"<a target='_blank' href='{gives(service, 'new.csv', b'x')}'>save</a>")
    response = await page.click(0)
    assert [one.name for one in await told(page, response)] == ["new.csv"]
    assert '<a id="0">save</a>' in page.text
    assert len((await page.observe()).tabs) == 1


async def test_what_a_page_makes_itself_is_a_download_too(play):
    page = await play(
        "<a download='made.txt'>save</a>"
        "<script>document.querySelector('a').href = URL.createObjectURL(new Blob(['made']))</script>"
    )
    assert [(one.name, one.state) for one in await told(page, await page.click(0))] == [("made.txt", COMPLETED)]
    assert kept(page) == [b"made"]


@pytest.mark.slow
async def test_downloads_are_bounded_in_number_and_size(make_service, open_play):
    limits = DownloadsConfig(max_files=2, max_total_mib=1)
    async for service in make_service(SessionsConfig(), downloads=limits):
        sizes = {"big": 2 * 2**20, "one": 10, "rest": 2**20 - 9, "two": 20, "three": 1}
        links = "".join(f"<a href='{gives(service, name, bytes(size))}'>{name}</a>" for name, size in sizes.items())
        page = await open_play(service, links)
        seen = [(await told(page, await page.click(number)))[-1] for number in range(len(sizes))]
        assert [(one.name, one.state) for one in seen] == [
            ("big", REFUSED),
            ("one", COMPLETED),
            ("rest", REFUSED),
            ("two", COMPLETED),
            ("three", REFUSED),
        ]
        assert ["1 MiB" in seen[0].message, "1 MiB" in seen[2].message, "2 files" in seen[4].message] == [True] * 3
        assert sorted(len(content) for content in kept(page)) == [10, 20]


@pytest.mark.slow
async def test_an_endless_download_is_cut_off(make_service, open_play):
    async def pour(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Disposition": "attachment"})
        await response.prepare(request)
        try:
            while True:
                await response.write(bytes(65_536))
        except ConnectionError:
            return response

    async for service in make_service(SessionsConfig(), downloads=DownloadsConfig(max_total_mib=1)):
        service.pages.handlers["endless"] = pour
        page = await open_play(service, "<a href='/endless'>save</a>")
        one = (await told(page, await page.click(0)))[-1]
        while one.state == env_pb2.DOWNLOAD_STATE_RUNNING:
            one = (await told(page, await page.act('do(action="Wait")')))[-1]
        assert one.state == REFUSED
        while any(directory(page).glob("*")) and page.index < 20:
            await page.act('do(action="Wait")')
        assert kept(page) == []


@pytest.mark.slow
async def test_no_downloads_can_be_allowed(make_service, open_play):
    async for service in make_service(SessionsConfig(), downloads=DownloadsConfig(max_files=0)):
        page = await open_play(service, f"<a href='{gives(service, 'a.csv', b'x')}'>save</a>")
        response = await page.click(0)
        assert response.timings.quiet
        assert page.text == '<a id="0">save</a>'
        assert not directory(page).exists()
