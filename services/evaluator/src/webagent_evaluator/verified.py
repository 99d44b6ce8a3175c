"""WebArena-Verified's typed comparison of the agent's response, by that project's own package.

The package comes with the extra "verified" and is imported with this module, at the first rule of its dialect. Its
other evaluator reads a network trace, which no session keeps, so a rule that needs one is unsupported.
"""

from __future__ import annotations

import json
from pathlib import Path

from webarena_verified.core.evaluation.evaluators.agent_response_evaluator import AgentResponseEvaluator
from webarena_verified.types.config import EnvironmentConfig, WebArenaVerifiedConfig
from webarena_verified.types.eval import EvaluatorResult, TaskEvalContext
from webarena_verified.types.task import AgentResponseEvaluatorCfg, WebArenaSite, WebArenaVerifiedTask
from webarena_verified.types.tracing import NetworkTrace

from webagent_evaluator.dialects import WebArenaRule
from webagent_evaluator.verdicts import Check, NoVerdictError, malformed


def judge_verified(rule: WebArenaRule, answer: str | None) -> list[Check]:
    """One check for each evaluator of the rule."""
    environments = _environments(rule)
    task = _task(rule, tuple(environments))
    config = WebArenaVerifiedConfig(environments=environments)
    trace = NetworkTrace(is_playwright=False, src_file=Path(), events=())
    context = TaskEvalContext(task=task, agent_response_raw=answer, network_trace=trace, config=config)
    checks = []
    for evaluator in task.eval:
        if not isinstance(evaluator, AgentResponseEvaluatorCfg):
            raise NoVerdictError("RULE_UNSUPPORTED", f"{evaluator.evaluator} needs a network trace, which is not kept")
        result = AgentResponseEvaluator().evaluate(context=context, config=evaluator)
        checks.append(_check(result, answer, strict=rule.manner.strict))
    return checks


def _environments(rule: WebArenaRule) -> dict[WebArenaSite, EnvironmentConfig]:
    try:
        return {WebArenaSite(name): EnvironmentConfig(urls=[url]) for name, url in rule.site_urls.items()}
    except ValueError as error:
        raise malformed(f"the rule's sites: {error}") from error


def _task(rule: WebArenaRule, sites: tuple[WebArenaSite, ...]) -> WebArenaVerifiedTask:
    intent = rule.intent or "-"
    fields = {
        "sites": sites,
        "task_id": 0,
        "intent_template_id": 0,
        "start_urls": (),
        "intent": intent,
        "eval": rule.parsed(),
        "intent_template": intent,
        "instantiation_dict": {},
        "revision": 1,
    }
    try:
        return WebArenaVerifiedTask.model_validate(fields)
    except ValueError as error:
        raise malformed(f"the rule: {error}") from error


def _check(result: EvaluatorResult, answer: str | None, *, strict: bool) -> Check:
    facts = json.dumps({"answer": answer, "result": result.model_dump(mode="json")}, ensure_ascii=False, default=str)
    if result.error_msg is not None:
        # What was expected is made comparable first: past that, it is the response that could not be.
        if strict and result.expected is not None:
            return Check("agent_response", False, facts, "The response has values that cannot be compared.")
        raise NoVerdictError("RESPONSE_NOT_COMPARABLE", result.error_msg)
    passed = result.status == "success"
    messages = [message for each in result.assertions or () for message in each.assertion_msgs or ()]
    return Check("agent_response", passed, facts, messages[0] if messages else "The response is the expected one.")
