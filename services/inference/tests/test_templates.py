"""Provenance of tokens under the chat templates of four families.

The tokenizers are small ones of our own: bytes, a few merges, and each family's control tokens. The templates are
written anew and keep the traits that matter here: what opens and closes a turn, the system prompt that is put in where
none is given, Llama's date, its trimming and its first token, Qwen3's cutting of past thoughts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from webagent_inference.chat import Chat
from webagent_inference.codec import ChatMessage

MERGES = [("h", "e"), ("t", "he"), ("Ġ", "the"), ("i", "n"), ("c", "l"), ("cl", "i"), ("cli", "c"), ("clic", "k")]


@dataclass(frozen=True)
class Family:
    """A family's control tokens and what its template does."""

    template: str
    controls: tuple[str, ...]
    end: str
    other_end: str
    words: tuple[str, ...] = ()
    bos: str | None = None


IM_TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
IM_OPEN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
IM_DEFAULT = "{% if messages[0].role != 'system' %}<|im_start|>system\n%s<|im_end|>\n{% endif %}"
IM_CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
IM_TURNS = "{% for m in messages %}" + IM_TURN + "{% endfor %}" + IM_OPEN
HEADER = "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>"

FAMILIES = {
    "SmolLM2": Family(
        IM_DEFAULT.replace("%s", "You are a small assistant.") + IM_TURNS, IM_CONTROLS, "<|im_end|>", "<|endoftext|>"
    ),
    "Qwen2.5": Family(
        IM_DEFAULT.replace("%s", "You are an assistant.") + IM_TURNS, IM_CONTROLS, "<|im_end|>", "<|endoftext|>"
    ),
    "Qwen3": Family(
        "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n"
        "{{ m.content.split('</think>')[-1].lstrip('\n') }}<|im_end|>\n"
        "{% else %}" + IM_TURN + "{% endif %}{% endfor %}" + IM_OPEN,
        IM_CONTROLS,
        "<|im_end|>",
        "<|endoftext|>",
        words=("<think>", "</think>"),
    ),
    "Llama 3": Family(
        "{{ bos_token }}{% if date_string is not defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
        "<|start_header_id|>system<|end_header_id|>\n\nToday Date: {{ date_string }}\n\n"
        "{% if messages[0].role == 'system' %}{{ messages[0].content | trim }}{% set messages = messages[1:] %}"
        "{% endif %}<|eot_id|>{% for m in messages %}" + HEADER + "{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
        ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|eot_id|>",
        "<|end_of_text|>",
        bos="<|begin_of_text|>",
    ),
}

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=30).filter(lambda text: "<" not in text)
# Past replies begin where a template leaves off, and end where it goes on: no whitespace that it might trim.
REPLY = TEXT.filter(lambda text: text == text.strip())
CLICK = 'do(action="Click", element="7")'


def write(directory: Path, family: Family) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: index for index, piece in enumerate([*alphabet, *("".join(pair) for pair in MERGES)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in family.controls])
    tokenizer.add_tokens([AddedToken(token, special=False) for token in family.words])
    tokenizer.save(str(directory / "tokenizer.json"))
    ends = [tokenizer.token_to_id(family.end), tokenizer.token_to_id(family.other_end)]
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": family.end, "bos_token": family.bos}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    (directory / "config.json").write_text(json.dumps({"vocab_size": tokenizer.get_vocab_size() + 10}))
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    (directory / "chat_template.jinja").write_text(family.template)


@pytest.fixture(scope="module", params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


@pytest.fixture(scope="module")
def chat(family: Family, tmp_path_factory: pytest.TempPathFactory) -> Chat:
    directory = tmp_path_factory.mktemp("family")
    write(directory, family)
    return Chat.load(directory, "model")


@pytest.fixture(scope="module")
def token(chat: Chat) -> Callable[[str], int]:
    def find(spelling: str) -> int:
        found: int = chat._tokenizer.convert_tokens_to_ids(spelling)
        return found

    return find


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


def spelled(chat: Chat, ids: list[int]) -> str:
    text: str = chat._tokenizer.decode(ids)
    return text


def test_both_end_tokens_end_a_reply_and_demonstrations_use_the_first(
    chat: Chat, family: Family, token: Callable[[str], int]
) -> None:
    assert chat.end_tokens == (token(family.end), token(family.other_end))
    assert chat.reply(CLICK)[-1] == token(family.end)
    assert chat.text(chat.reply(CLICK)) == CLICK


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pages=st.lists(TEXT, min_size=3, max_size=3), replies=st.lists(REPLY, min_size=2, max_size=2))
def test_canonical_replies_give_the_tokens_of_the_whole_text(chat: Chat, pages: list[str], replies: list[str]) -> None:
    spliced = [user(pages[0])]
    whole = [{"role": "user", "content": pages[0]}]
    for page, reply in zip(pages[1:], replies, strict=True):
        spliced += [ChatMessage("assistant", chat.reply(reply)), user(page)]
        whole += [{"role": "assistant", "content": reply}, {"role": "user", "content": page}]
    text = chat._tokenizer.apply_chat_template(
        whole, tokenize=False, add_generation_prompt=True, date_string="26 Jul 2024"
    )
    assert chat.prompt(spliced) == chat._tokenizer.encode(text, add_special_tokens=False)


def test_a_past_reply_stays_as_it_was_sampled(chat: Chat, token: Callable[[str], int]) -> None:
    # "click" has a token of its own; a policy may well spell it out.
    sampled = [token("c"), token("l"), token("i"), token("c"), token("k"), chat.end_tokens[0]]
    assert chat.text(sampled) == chat.text(chat.reply("click"))
    assert sampled != chat.reply("click")
    prompt = chat.prompt([user("1"), ChatMessage("assistant", sampled), user("2")])
    assert any(prompt[at : at + 6] == sampled for at in range(len(prompt)))


@pytest.mark.parametrize("reply", [[], [1, 2, 3]])
def test_a_reply_ends_once_however_it_ended(chat: Chat, reply: list[int]) -> None:
    def prompt(ids: list[int]) -> list[int]:
        return chat.prompt([user("1"), ChatMessage("assistant", ids), user("2")])

    first, other = chat.end_tokens
    cut_off, ended, ended_otherwise = prompt(reply), prompt([*reply, first]), prompt([*reply, other])
    assert cut_off == ended
    assert [first if each == other else each for each in ended_otherwise] == ended
    assert ended_otherwise.count(other) == ended.count(other) + 1


def test_text_never_becomes_a_control_token(chat: Chat, family: Family, token: Callable[[str], int]) -> None:
    plain = chat.prompt([ChatMessage("system", "s"), user("page")])
    for control in family.controls:
        for hostile in (f"page{control}", f"{control}{control}page", f"page{control[:-1]}{control}"):
            prompt = chat.prompt([ChatMessage("system", "s"), user(hostile)])
            assert hostile in spelled(chat, prompt)
            for each in family.controls:
                assert prompt.count(token(each)) == plain.count(token(each))
        assert token(control) not in chat.reply(f"a{control}b")[:-1]


def test_a_thought_is_the_policy_s_own_text(chat: Chat, family: Family, token: Callable[[str], int]) -> None:
    if not family.words:
        pytest.skip("the family has no tokens for thoughts")
    reply = chat.reply(f"<think>\nWhere?\n</think>\n\n{CLICK}")
    assert [reply.count(token(word)) for word in family.words] == [1, 1]
    assert "<think>" in chat.text(reply)
    # The template would cut it out of a past reply; what was sampled stays in the context that it was sampled in.
    prompt = chat.prompt([user("1"), ChatMessage("assistant", reply), user("2")])
    assert prompt.count(token("<think>")) == 1


def test_a_prompt_does_not_depend_on_the_day(chat: Chat, family: Family) -> None:
    text = spelled(chat, chat.prompt([user("hi")]))
    assert ("Today Date: 26 Jul 2024" in text) == (family.bos is not None)
    assert text.count("<|begin_of_text|>") == (1 if family.bos else 0)


def test_identities_tell_tokenizers_and_templates_apart(family: Family, chat: Chat, tmp_path: Path) -> None:
    write(tmp_path, family)
    assert Chat.load(tmp_path, "model").identity == chat.identity
    (tmp_path / "chat_template.jinja").write_text(family.template + " ")
    changed = Chat.load(tmp_path, "model").identity
    assert changed.template_hash != chat.identity.template_hash
    assert changed.tokenizer_hash == chat.identity.tokenizer_hash
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["model"]["merges"].pop()
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert Chat.load(tmp_path, "model").identity.tokenizer_hash != chat.identity.tokenizer_hash


def test_a_template_that_refuses_a_conversation_is_a_refusal(tmp_path: Path) -> None:
    from webagent_runtime.errors import ServiceError

    strict = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    write(tmp_path, Family(strict + IM_TURNS, IM_CONTROLS, "<|im_end|>", "<|endoftext|>"))
    chat = Chat.load(tmp_path, "model")
    with pytest.raises(ServiceError, match="no system role") as refused:
        chat.prompt([ChatMessage("system", "s"), user("u")])
    assert refused.value.reason == "INVALID_REQUEST"
