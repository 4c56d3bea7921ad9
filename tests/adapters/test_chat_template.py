from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models
from transformers import PreTrainedTokenizerFast

from acceptor.adapters import ChatTemplate
from acceptor.core import CheckpointError, InvalidInputError
from kit.checkpoints import edit_json

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "  Be <b>brief</b> & kind. "},
    {"role": "user", "content": "Héllo\n'there'"},
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": "Bye"},
]
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

TEMPLATES = {
    "blocks keep no whitespace": """{{ bos_token }}
  {% for message in messages %}
    {% if loop.first %}
      [{{ loop.index0 }}] {{ message.content }}
    {% endif %}
  {% endfor %}
{{ eos_token }}
""",
    "loop controls": "{% for m in messages %}{% if loop.index == 2 %}{% continue %}{% endif %}"
    "{% if loop.last %}{% break %}{% endif %}{{ m.role }},{% endfor %}",
    "tojson": "{{ messages | tojson }} {{ messages[0] | tojson(indent=2) }} "
    "{{ {'b': 1, 'a': 'é'} | tojson(sort_keys=true, ensure_ascii=true) }}",
    "generation blocks": "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% generation %}{% set x = 1 %}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}",
    "macros": "{% macro say(text, n) %}{{ n }}:{% if n %}{{ say(text, n - 1) }}{% else %}"
    "{{ text }}{% endif %}{% endmacro %}{{ say(messages[1].content, 5) }}",
}

FAMILIES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).parent / "templates").glob("*.jinja"))
}
"""Our own templates: each has every construct of its family's published template."""
SYSTEM: dict[str, Any] = {"role": "system", "content": " Be <b>kind</b> & 'brief'.\n"}
ASK, NEXT = ({"role": "user", "content": text} for text in ("Où\nest-il? ", "<r>no</r>"))
CALL: dict[str, Any] = {
    "role": "assistant",
    "content": "",
    "thinking": "Look it up.",
    "reasoning_content": "\nLook it up.\n",
    "tool_calls": [{"function": {"name": "find", "arguments": {"what": "é", "most": 3}}}],
}
RESULT: dict[str, Any] = {"role": "tool", "content": '{"at": "北京"}'}
ANSWER: dict[str, Any] = {"role": "assistant", "content": "<t>\nEasy.\n</t>\n\nThere. "}
THOUGHT = ANSWER | {"thinking": "Easy.", "reasoning_content": "Easy."}
TALKS: dict[str, list[dict[str, Any]]] = {
    "one turn": [ASK],
    "told before": [SYSTEM, ASK, ANSWER, NEXT],
    "ends with an answer": [SYSTEM, ASK, THOUGHT],
    "a call": [ASK, CALL, RESULT],
    "a call that was answered": [SYSTEM, ASK, CALL, RESULT, ANSWER, ASK],
    "two calls": [ASK, CALL, RESULT, CALL, RESULT, ANSWER],
}
PARTS = [{"type": "text", "text": "Où"}, "est-il?", {"type": "image"}]
MORE_TALKS: dict[str, list[list[dict[str, Any]]]] = {
    "glm": [[ASK | {"content": PARTS}, CALL, RESULT | {"content": [{"output": "x"}, "y"]}]],
    "qwen": [[ASK, CALL | {"tool_calls": [{"name": "find", "arguments": "{}"}] * 2}]],
    "llama": [[ASK, CALL, RESULT | {"content": {"at": ["x"]}}]],
}
FIELDS: dict[str, Any] = {
    "what": {"type": "string", "enum": ["é", "<b>"], "default": "é"},
    "most": {"oneOf": [{"type": "integer", "default": 3}, {"type": "object"}]},
    "where": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "any"}}}},
    "words": {"type": "array", "items": {"type": "string"}, "nullable": True},
    "more": {"type": "array"},
    "either": {"type": ["string", "null"]},
    "one": {"type": ["string"]},
}
PARAMETERS = {"type": "object", "required": ["what"], "properties": FIELDS}
TOOL = {
    "type": "function",
    "function": {"name": "find", "description": "Finds – a thing.", "parameters": PARAMETERS},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "none": {},
    "tools": {"tools": [TOOL, TOOL]},
    "own names": {
        "given_tools": [TOOL],
        "with_first": False,
        "shell": ["python", "find"],
        "day": "a day",
        "who": "I",
        "effort": "all",
        "forget": False,
        "enable_thinking": False,
    },
}


def transformers_says(
    template: str, messages: list[dict[str, Any]] = MESSAGES, **variables: Any
) -> str:
    backend = Backend(models.WordLevel({"<s>": 0, "</s>": 1}))
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIAL_TOKENS)
    text = fast.apply_chat_template(messages, chat_template=template, tokenize=False, **variables)
    assert isinstance(text, str)
    return text


def ours(template: str, messages: list[dict[str, Any]] = MESSAGES, **variables: Any) -> str:
    compiled = ChatTemplate.compile("chat_template.jinja", template)
    return compiled.render(messages, SPECIAL_TOKENS, **variables)


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_renders_as_transformers_does(template: str, add_generation_prompt: bool) -> None:
    variables: Any = {"add_generation_prompt": add_generation_prompt}
    assert ours(template, **variables) == transformers_says(template, **variables)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("family", FAMILIES)
def test_what_published_templates_of_a_family_do(family: str, setting: str) -> None:
    said = set()
    for talk in [*TALKS.values(), *MORE_TALKS.get(family, ())]:
        for opens in (True, False):
            variables = {"add_generation_prompt": opens, **SETTINGS[setting]}
            text = ours(FAMILIES[family], talk, **variables)
            assert text == transformers_says(FAMILIES[family], talk, **variables)
            said.add(text)
    # Nothing of a conversation is lost.
    assert len(said) == 2 * (len(TALKS) + len(MORE_TALKS.get(family, ())))


def test_where_the_template_comes_from(tmp_path: Path) -> None:
    def said() -> str | None:
        template = ChatTemplate.load(tmp_path)
        return None if template is None else template.render([], {})

    assert said() is None
    edit_json(tmp_path / "tokenizer_config.json", **SPECIAL_TOKENS)
    assert said() is None
    edit_json(tmp_path / "tokenizer_config.json", chat_template="config")
    assert said() == "config"
    named = [{"name": "tools", "template": "t"}, {"name": "default", "template": "named"}]
    edit_json(tmp_path / "tokenizer_config.json", chat_template=named)
    assert said() == "named"
    (tmp_path / "chat_template.jinja").write_text("file", encoding="utf-8")
    assert said() == "file"


@pytest.mark.parametrize(
    ("template", "messages", "reason"),
    [
        ("{{ raise_exception('alternate!') }}", MESSAGES, "alternate!"),
        (FAMILIES["llama"], [SYSTEM], "nobody asks"),
        (FAMILIES["llama"], [ASK, CALL | {"tool_calls": CALL["tool_calls"] * 2}], "one at a time"),
        (FAMILIES["gpt-oss"], [ASK, RESULT], "nobody called"),
        (FAMILIES["gpt-oss"], [ASK, ANSWER | {"content": "[system]"}], "marks in the content"),
    ],
)
def test_a_template_may_refuse(template: str, messages: list[dict[str, Any]], reason: str) -> None:
    refused = rf"chat_template\.jinja refuses them: {reason}"
    with pytest.raises(InvalidInputError, match=refused):
        ours(template, messages, tools=[TOOL])


@pytest.mark.parametrize("template", ["{% if %}", "{{ 'a }}", "{% nonsense %}", "{% for x %}"])
def test_what_is_no_template(template: str) -> None:
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja: expected a Jinja template"):
        ours(template)


@pytest.mark.parametrize("field", [3, [{"name": "tools", "template": "t"}], [1], {"a": "b"}])
def test_a_field_that_is_no_template(tmp_path: Path, field: object) -> None:
    edit_json(tmp_path / "tokenizer_config.json", chat_template=field)
    with pytest.raises(CheckpointError, match=r"config\.json: chat_template: expected a template"):
        ChatTemplate.load(tmp_path)


HOSTILE = {
    "classes by filter": "{{ (''|attr('__class__')).x }}",
    "globals of a function": "{{ raise_exception.__globals__.x }}",
    "globals of a macro": "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    "formats": "{{ '{0.__class__.__mro__}'.format('') }}",
    "the template itself": "{{ self._TemplateReference__context.environment.call }}",
    "private namespace": "{% set n = namespace(__call__=1) %}{{ n }}",
    "private namespace later": "{% set n = namespace() %}{% set n.__class__ = 1 %}{{ n }}",
    "changing messages": "{{ messages.clear() }}",
    "nonsense": "{{ lipsum(n=100000) }}",
    "other templates": "{% include '/etc/passwd' %}",
    "imports": "{% import 'os' as os %}{{ os }}",
    "recursive loop": "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "branching macro": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}"
    "{% endmacro %}{{ m(60) }}",
    "large ranges": "{{ range(10 ** 9) | list }}",
    "large text": "{{ 'a' * 10 ** 12 }}",
    "large list": "{{ 10 ** 12 * [0] }}",
    "large power": "{{ 9 ** (9 ** 9) }}",
    "large factors": "{% set n = namespace(x=9) %}{% for i in range(99) %}"
    "{% set n.x = n.x * n.x %}{% endfor %}",
    "division": "{{ 1 / 0 }}",
    "undefined": "{{ nothing.at.all }}",
}

DOUBLED = "{% set n = namespace(x='ab') %}{% for i in range(40) %}{% set n.x = X %}{% endfor %}"
HOSTILE |= {
    f"grows by {name}": DOUBLED.replace("X", grown) + "{{ n.x | length }}"
    for name, grown in {
        "~": "n.x ~ n.x",
        "join": "[n.x, n.x] | join(n.x)",
        "indent": "('a\n' ~ n.x) | indent(9999999)",
        "a sum of lists": "[n.x | list, n.x | list] | sum(start=[])",
    }.items()
}
HOSTILE |= {
    "center": "{{ 'a' | center(10 ** 10) }}",
    "wide tojson": "{{ [1] | tojson(indent=10 ** 10) }}",
    "long output": "{% for i in range(50000) %}{{ 'a' * 100 }}{% endfor %}",
}


@pytest.mark.parametrize("template", HOSTILE.values(), ids=HOSTILE)
def test_hostile_templates_end_in_one_line(template: str) -> None:
    with pytest.raises(
        CheckpointError, match=r"^chat_template\.jinja: expected a (prompt|Jinja template), got "
    ) as caught:
        ours(template)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
