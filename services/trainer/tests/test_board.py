"""States, pauses and the pause between phases, with a thread that trains and a loop that asks."""

import asyncio
import threading

from webagent_trainer.board import Board, State


def in_thread(work: object) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_a_run_that_is_over_stays_as_it_ended() -> None:
    board = Board("run")
    board.update(state=State.STOPPED)
    board.update(state=State.RUNNING)
    assert board.status.state is State.STOPPED


def test_a_pause_lasts_until_it_is_taken_back() -> None:
    board = Board("run")
    board.wait_while_paused()
    board.ask_pause()
    thread = in_thread(board.wait_while_paused)
    with board.bell:
        assert board.bell.wait_for(lambda: board.status.state is State.PAUSED, 5)
    board.ask_resume()
    thread.join(5)
    assert board.status.state is State.RUNNING


def test_a_stop_ends_a_pause() -> None:
    board = Board("run")
    board.ask_pause()
    thread = in_thread(board.wait_while_paused)
    board.ask_stop()
    thread.join(5)
    assert not thread.is_alive()
    assert board.stop_asked


def test_resuming_a_pause_inside_a_phase_keeps_the_pause_between_phases() -> None:
    board = Board("run", hold=True)
    board.ask_pause()
    board.ask_resume()
    assert board.hold_asked
    board.ask_resume()
    assert not board.hold_asked
    board.wait_while_held()


async def test_a_watcher_sees_the_status_at_once_and_each_change_until_the_end() -> None:
    board = Board("run")
    seen: list[State] = []
    started = asyncio.Event()

    async def watch() -> None:
        async for status in board.watch():
            seen.append(status.state)
            started.set()

    watching = asyncio.create_task(watch())
    await started.wait()
    in_thread(lambda: board.update(state=State.SUCCEEDED)).join(5)
    await asyncio.wait_for(watching, 5)
    assert seen == [State.PENDING, State.SUCCEEDED]
