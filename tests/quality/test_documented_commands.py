"""Every command and program in the documentation is run by a test, or marked as an example.

The line before a block of commands says which, where GitHub and the site do not show it:

    <!-- run: tests/sdk/test_docs.py -->    a test runs the block
    <!-- example -->                        nobody does

Examples are checked without running them: `outrider` has the commands and the options, and the
API has the endpoints that curl requests.
"""

import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from outrider.cli import main
from outrider.service.endpoints import ENDPOINTS
from tests.quality.test_documentation import PAGES, ROOT

COMMANDS = {"sh", "console", "python", "js"}
DATA = {"caddy", "haproxy", "http", "ini", "json", "nginx", "promql", "text", "toml", "yaml"}

_BLOCK = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (?:example(?:: [^>]+)?|run: (\S+)) -->\s*\Z")
_SPAN = re.compile(r"(?<!`)`(outrider [^`]+)`(?!`)")
_REQUEST = re.compile(r"\$(?:API|(?:BASE|SERVER)/api/v1)(/[^\s\"'?]*)")
_END = re.compile(r"^(?:\||\|\||&&|;|\(|\))$")


class Block(NamedTuple):
    """A block of code, and what stands before it."""

    place: str
    language: str
    before: str
    text: str


def _blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        for found in _BLOCK.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            place = f"{page.relative_to(ROOT)}:{line}"
            yield Block(place, found[2].strip(), text[: found.start()], found[3])


BLOCKS = list(_blocks())


def test_every_block_has_a_language() -> None:
    unknown = [block.place for block in BLOCKS if block.language not in COMMANDS | DATA]
    assert unknown == [], f"choose one of {sorted(COMMANDS | DATA)}"


def test_every_command_is_run_or_marked_as_an_example() -> None:
    unmarked = []
    for block in BLOCKS:
        if block.language in COMMANDS:
            mark = _MARK.search(block.before)
            if mark is None:
                unmarked.append(block.place)
            elif mark[1]:
                assert (ROOT / mark[1]).is_file(), f"{block.place}: {mark[1]}"
                test = (ROOT / mark[1]).read_text()
                name = block.place.partition(":")[0].rpartition("/")[2]
                is_run = name in test or f"<!-- run: {mark[1]} -->" in test
                assert is_run, f"{block.place}: {mark[1]} does not read it"
    assert unmarked == [], "write <!-- example --> or <!-- run: TEST --> in the line before"


@pytest.fixture(scope="module")
def application() -> Any:
    """The whole command line, as `outrider` without arguments puts it together."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()):
        patch.setattr(sys, "argv", ["outrider"])
        with pytest.raises(SystemExit):
            main.run()
    return get_command(main.app)


def _fault(command: Any, words: list[str]) -> str | None:
    """Return what is wrong with the arguments of `outrider`, as far as they show it."""
    while (children := getattr(command, "commands", None)) and words:
        word, *words = words
        if word.startswith("-"):
            return None
        if word not in children:
            return f"there is no command {word}"
        command = children[word]
    known = {option for parameter in command.params for option in parameter.opts}
    known |= {option for parameter in command.params for option in parameter.secondary_opts}
    for word in words:
        if word == "--":
            return None
        option = word.partition("=")[0]
        if re.fullmatch(r"--[a-z][a-z-]*", option) and option not in known | {"--help"}:
            return f"{command.name} has no option {option}"
    return None


def _invocations(text: str) -> Iterator[list[str]]:
    """Give the arguments of each `outrider` in a script."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # a quote that ends in another line
            words = line.split()
        for number, word in enumerate(words):
            is_command = all(_END.match(before) or "=" in before for before in words[:number][-1:])
            if word == "outrider" and is_command:
                rest = words[number + 1 :]
                end = next(
                    (n for n, argument in enumerate(rest) if _END.match(argument)), len(rest)
                )
                yield rest[:end]


def test_outrider_has_the_commands_and_options(application: Any) -> None:
    faults = []
    for block in BLOCKS:
        if block.language in {"sh", "console"}:
            found = (_fault(application, words) for words in _invocations(block.text))
            faults += [f"{block.place}: {fault}" for fault in found if fault]
    for page in PAGES:
        for span in _SPAN.findall(page.read_text()):
            words = re.sub(r"[\[\]…|<>]", " ", span).split()[1:]
            if not words or not re.fullmatch("[a-z-]+", words[0]):
                continue
            if fault := _fault(application, words):
                faults.append(f"{page.relative_to(ROOT)}: `{span}`: {fault}")
    assert faults == []


def _method(line: str) -> str:
    if named := re.search(r"-X (\w+)", line):
        return named[1]
    return "POST" if re.search(r" (?:-d|--data\S*) ", line) else "GET"


def _unknown_request(line: str) -> str | None:
    """Return the method and path that a curl of this line requests, if the API has no such."""
    path = _REQUEST.search(line)
    if "curl" not in line or path is None:
        return None
    method = _method(line)
    for endpoint in ENDPOINTS:
        pattern = re.sub(r"\{\w+\}", "[^/]+", endpoint.path)
        if endpoint.method == method and re.fullmatch(pattern, f"/api/v1{path[1].rstrip(')')}"):
            return None
    return f"{method} {path[1]}"


def test_the_api_has_the_endpoints_that_curl_requests() -> None:
    faults = [
        f"{block.place}: {fault}"
        for block in BLOCKS
        if block.language == "sh"
        for line in block.text.replace("\\\n", " ").splitlines()
        if (fault := _unknown_request(line))
    ]
    assert faults == []
