"""Plays with OpenEnv's own client, asynchronous and not; run by a Python that has openenv-core. Prints what it saw."""

import asyncio
import json
import re
import sys

from openenv.core.generic_client import GenericEnvClient


def solution(observation: dict) -> dict:
    name = re.search(r'"(.*)"', observation["instruction"])[1]
    number = re.search(rf'<button id="(\d+)"[^>]*>{re.escape(name)}<', observation["text"], re.IGNORECASE)[1]
    return {"action": f'do(action="Click", element="{number}")'}


async def play(address: str) -> list:
    async with GenericEnvClient(base_url=address) as env:
        first = await env.reset(seed=3, task="miniwob/click-button")
        last = await env.step(solution(first.observation))
        state = await env.state()
        again = await env.reset(seed=4)
        try:
            await env.reset(task="miniwob/no-such-task")
            refused = ""
        except RuntimeError as error:
            refused = str(error)
        return [first.done, last.reward, last.done, state["step_count"], bool(again.observation["text"]), refused]


def play_in_step(address: str) -> list:
    with GenericEnvClient(base_url=address).sync() as env:
        first = env.reset(seed=5)
        last = env.step(solution(first.observation))
        return [last.reward, last.done]


if __name__ == "__main__":
    sys.stdout.write(json.dumps([asyncio.run(play(sys.argv[1])), play_in_step(sys.argv[1])]))
