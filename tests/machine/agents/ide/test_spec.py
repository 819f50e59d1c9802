"""What a provider file of an IDE may hold."""

from pathlib import Path

import pytest

from outrider.machine.agents.ide.spec import decode_ide
from outrider.machine.agents.provider_spec import ProviderFileError, read_tables

ENOUGH = """
type = "some"
category = "ide"
display_name = "Some"
command = ["some"]
install = "-"
pages = "^http"
[[agents]]
type = "one"
name = "One"
panel = "#panel"
input = "textarea"
"""


def decoded(folder: Path, text: str) -> str:
    (folder / "some.toml").write_text(text)
    (table,) = read_tables([folder])
    return decode_ide(table.path, table.fields)[1]


def test_the_script_beside_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "some.js").write_text("({})")
    assert decoded(tmp_path, 'script = "some.js"\n' + ENOUGH) == "({})"
    assert decoded(tmp_path, ENOUGH) == "{}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('"^http"', '"("'), "pages: not a regular expression"),
        (("[[agents]]", 'script = "none.js"\n[[agents]]'), "none.js"),
        (("[[agents]]", 'script = "../none.js"\n[[agents]]'), "../none.js"),
        (("[[agents]]", 'debug_args = ["nul\\u0000"]\n[[agents]]'), "debug_args"),
        (('input = "textarea"', ""), "input"),
        (('name = "One"', 'name = "One"\nguard_before = "["'), "guard_before"),
        (('name = "One"', 'name = "One"\nnonsense = 1'), "nonsense"),
        ((ENOUGH[ENOUGH.index("[[agents") :], 'agents_from = "nobody"'), "nobody"),
        ((ENOUGH[ENOUGH.index("[[agents") :], 'agents_from = "aider"'), "aider"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    with pytest.raises(ProviderFileError, match=r"some\.toml") as refused:
        decoded(tmp_path, ENOUGH.replace(*change))
    assert said in str(refused.value)
