"""Slots: as many as there are, and fairly shared."""

from __future__ import annotations

import asyncio

from webagent_inference.slots import Purpose, Slots


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Crowd:
    """Requests that hold their slot until they are let go."""

    def __init__(self, count: int) -> None:
        self.slots = Slots(count)
        self.served: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._leave: dict[str, asyncio.Event] = {}

    def come(self, name: str, purpose: Purpose) -> None:
        self._leave[name] = asyncio.Event()

        async def hold() -> None:
            async with self.slots.taken(purpose):
                self.served.append(name)
                await self._leave[name].wait()

        self.tasks[name] = asyncio.create_task(hold())

    async def go(self, name: str) -> None:
        self._leave[name].set()
        await self.tasks[name]
        await settle()

    async def give_up(self, name: str) -> None:
        self.tasks[name].cancel()
        await asyncio.wait({self.tasks[name]})
        await settle()


async def test_one_kind_alone_may_have_every_slot_in_the_order_of_arrival() -> None:
    crowd = Crowd(2)
    for name in "abcd":
        crowd.come(name, Purpose.TRAINING)
    await settle()
    assert crowd.served == ["a", "b"]
    await crowd.go("b")
    await crowd.go("a")
    assert crowd.served == ["a", "b", "c", "d"]
    await crowd.go("c")
    await crowd.go("d")


async def test_a_long_queue_of_training_does_not_keep_an_evaluation_waiting() -> None:
    crowd = Crowd(2)
    for number in range(10):
        crowd.come(f"t{number}", Purpose.TRAINING)
    crowd.come("e0", Purpose.EVALUATION)
    crowd.come("e1", Purpose.EVALUATION)
    await settle()
    await crowd.go("t0")
    assert crowd.served == ["t0", "t1", "e0"]
    await crowd.go("t1")
    assert crowd.served[3:] == ["t2"]
    await crowd.go("e0")
    assert crowd.served[4:] == ["e1"]
    for task in crowd.tasks.values():
        task.cancel()
    await asyncio.wait(crowd.tasks.values())


async def test_whoever_gives_up_leaves_its_place_to_the_next() -> None:
    crowd = Crowd(1)
    for name in "abcd":
        crowd.come(name, Purpose.EVALUATION)
    await settle()
    await crowd.give_up("b")
    await crowd.give_up("a")
    assert crowd.served == ["a", "c"]
    # Given up in the very moment in which the slot was handed over.
    crowd.tasks["d"].cancel()
    crowd._leave["c"].set()
    await settle()
    crowd.come("e", Purpose.TRAINING)
    await settle()
    assert crowd.served == ["a", "c", "e"]
    await crowd.go("e")


async def test_the_only_slot_goes_to_both_kinds_in_turn() -> None:
    crowd = Crowd(1)
    for number in range(3):
        crowd.come(f"t{number}", Purpose.TRAINING)
    for number in range(3):
        crowd.come(f"e{number}", Purpose.EVALUATION)
    await settle()
    for _ in range(6):
        await crowd.go(crowd.served[-1])
    assert crowd.served == ["t0", "e0", "t1", "e1", "t2", "e2"]
