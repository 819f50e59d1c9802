"""CLI provider specs: strict, mergeable, with errors that name the file and the field."""

from pathlib import Path

import pytest

from outrider.machine.agents.cli.screen import ScreenRules
from outrider.machine.agents.cli.spec import CliSpec, decode_cli
from outrider.machine.agents.provider_spec import (
    BUILT_IN_DIRECTORY,
    ProviderFileError,
    fill_placeholders,
    read_tables,
)
from outrider.machine.sessions.guards import Guards

MINIMAL = """
type = "python"
display_name = "Python"
command = ["python3", "-q"]
install = "apt install python3"
[[rules]]
name = "prompt"
status = "idle"
screen = '^>>>$'
"""


QUESTION = (
    MINIMAL
    + """
[[rules]]
name = "question"
status = "waiting_approval"
screen = 'Which\\?'
[rules.dialog]
option = '^(?P<key>.)\\) (?P<label>.*)'
keys = ["{", "{key}"]
"""
)


def read_cli_specs(directories: list[Path]) -> list[CliSpec]:
    """Read the provider files of agents in a terminal in these directories.

    Raises:
        ProviderFileError: a file is not TOML, or one of its fields is invalid.
    """
    specs = []
    for table in read_tables(directories):
        if table.error is not None:
            raise table.error
        if table.fields.get("category", "cli") == "cli":
            specs.append(decode_cli(table.path, table.fields))
    return specs


def test_a_minimal_provider_file_is_valid(tmp_path: Path) -> None:
    (tmp_path / "python.toml").write_text(MINIMAL)
    (file,) = read_cli_specs([tmp_path])
    assert (file.type, file.category, file.verified) == ("python", "cli", False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("type = [", "not a readable TOML file"),
        (MINIMAL.replace('install = "apt install python3"', ""), "install"),
        (MINIMAL + "colour = 3\n", "colour"),
        (MINIMAL.replace('"idle"', '"bored"'), "rules[0].status"),
        (MINIMAL.replace("'^>>>$'", "'('"), "rule 'prompt', screen"),
        (MINIMAL.replace("screen = '^>>>$'", ""), "`screen` or `title`"),
        (MINIMAL.replace('"idle"', '"waiting_approval"'), "`dialog`"),
        (MINIMAL.replace('["python3", "-q"]', "[]"), "command"),
        (MINIMAL.replace('"-q"', '"nul\\u0000"'), "command[1]"),
        (MINIMAL.replace('"Python"', '"Py\\u001b[31m"'), "display_name"),
        (MINIMAL.replace('"Python"', f'"{"x" * 300}"'), "display_name"),
        (MINIMAL.replace('"python"', '"Pyth on"'), "type"),
        (MINIMAL + "dialog_like = 'nothing'\n", "`dialog`"),
        (MINIMAL + "[environment]\nset = { 'A=B' = 'c' }\n", "environment"),
        (MINIMAL + "[environment]\nset = { A = 'nul\\u0000' }\n".replace("'", '"'), "environment"),
        (MINIMAL + "[[hints]]\nmatch = '['\ntext = 'x'\n", "match: not a regular expression"),
        (MINIMAL + "[input]\nempty = '('\n", "empty: not a regular expression"),
        (QUESTION.replace("(?P<key>.)", "(.)"), "(?P<key>"),
        (QUESTION.replace("(?P<label>", "(?P<text>"), "(?P<label>"),
        (MINIMAL.replace("'^>>>$'", "'a{99999999999999999999}'"), "rule 'prompt', screen"),
        ("a = " + "[" * 100_000, "recursion"),
        ("a = 1" + "0" * 5000, "4300 digits"),
        (f"# {'x' * 2**20}", "more than 1048576 bytes"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "python.toml").write_text(text)
    with pytest.raises(ProviderFileError) as error:
        read_cli_specs([tmp_path])
    assert str(tmp_path / "python.toml") in str(error.value)
    assert said in str(error.value)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 1000


def test_a_later_file_changes_a_built_in_one(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'type = "claude-code"\ncommand = ["my-claude"]\n[environment]\nset = { A = "b" }\n'
        "[[rules]]\nname = 'mine'\nstatus = 'error'\nscreen = 'oh no'\n"
    )
    built_in = {file.type: file for file in read_cli_specs([BUILT_IN_DIRECTORY])}["claude-code"]
    changed = {f.type: f for f in read_cli_specs([BUILT_IN_DIRECTORY, tmp_path])}["claude-code"]
    assert changed.command == ["my-claude"]
    assert changed.environment.set == {**built_in.environment.set, "A": "b"}
    assert changed.environment.unset == built_in.environment.unset
    assert [r.name for r in changed.rules] == ["mine", *(r.name for r in built_in.rules)]


@pytest.mark.parametrize(
    "text",
    [
        "plain", "/help", " /help", "!ls", "  !ls", "a/b", "trailing \\", "see @file", "@", "a@b c",
        "/x\\", "multi\n/line", "spaces at the end  ", "\\ ",
    ],
)  # fmt: skip
def test_a_guarded_message_is_restored(text: str) -> None:
    guards = Guards("^ *[/!]", r"(?:@\S*|\\) *\Z")
    assert guards.remove(guards.add(text)) == text


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{dir}/x", "/srv/{model}/x"),
        ('{"json": {"in": "{dir}"}}', '{"json": {"in": "/srv/{model}"}}'),
        ("{", "{"),
        ("{}{0}{other}{dir.name}", "{}{0}{other}{dir.name}"),
        ("{{dir}}", "{/srv/{model}}"),
    ],
)
def test_only_known_placeholders_are_filled_in(text: str, filled: str) -> None:
    assert fill_placeholders(text, {"dir": "/srv/{model}", "model": "m"}) == filled


def test_braces_in_a_rule_s_message_and_in_an_option_s_keys(tmp_path: Path) -> None:
    (tmp_path / "python.toml").write_text(
        QUESTION
        + """
[[rules]]
name = "failed"
status = "error"
screen = 'failed: (?P<error>.*)'
message = "{it} says {error}"
"""
    )
    (file,) = read_cli_specs([tmp_path])
    assert ScreenRules(file).read("failed: no {disk}", "").error == "{it} says no {disk}"
    question = ScreenRules(file).read("Which?\n1) Yes\n2) No", "").question
    assert question is not None
    assert [offer.keys for offer in question.offers] == [("{", "1"), ("{", "2")]
