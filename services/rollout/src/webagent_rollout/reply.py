"""Cuts the action out of a reply.

The cut is always a piece of the reply and is never looked into: env holds the only parser of actions.
"""

# Env refuses a longer text outright; cut to this length it is judged, and rejected, as any other text.
MAX_ACTION_BYTES = 65_536

ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"
THINK_OPEN, THINK_CLOSE = "<think>", "</think>"


def cut_action(reply: str, *, thinking: bool) -> str:
    """Returns the text of the first answer in the thinking form, else the reply itself, without white space around it.

    An answer that was not closed reaches to the end. Without any answer, what follows the reasoning is taken; of a
    reasoning that never ended nothing is, for an action considered in it is not an action chosen.
    """
    action = _answer(reply) if thinking else reply
    return action.strip().encode()[:MAX_ACTION_BYTES].decode(errors="ignore")


def _answer(reply: str) -> str:
    _, opened, answer = reply.partition(ANSWER_OPEN)
    if opened:
        return answer.partition(ANSWER_CLOSE)[0]
    before, closed, after = reply.partition(THINK_CLOSE)
    if closed:
        return after
    return "" if THINK_OPEN in before else reply


def demonstrate(action: str, *, thinking: bool) -> str:
    """Words an expert's action as the reply that a model is asked for."""
    if not thinking:
        return action
    return f"{THINK_OPEN}The next action is {action}.{THINK_CLOSE}{ANSWER_OPEN}{action}{ANSWER_CLOSE}"
