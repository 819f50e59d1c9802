"""Texts that a machine or an agent may send to do something in the browser of who reads them."""

from collections.abc import Sequence
from typing import Final

ELSEWHERE: Final = "http://evil.example"

LINES: Final = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<svg/onload=alert(1)>",
    f"<iframe src={ELSEWHERE}></iframe><base href={ELSEWHERE}/>",
    f'<meta http-equiv=refresh content="0;url={ELSEWHERE}">',
    f"<link rel=stylesheet href={ELSEWHERE}/x.css><style>*{{display:none}}</style>",
    f"<form action={ELSEWHERE}><input name=password></form>",
    "<a href='javascript:alert(1)'>here</a>",
    "[here](javascript:alert(1))",
    "[here](JaVaScRiPt&colon;alert(1)) [here](vbscript:x) [here](data:text/html,x)",
    "<javascript:alert(1)> <data:text/html,x> javascript:alert(1)",
    f"![picture]({ELSEWHERE}/seen.png) ![picture](//evil.example/seen.png)",
    "![picture](/api/v1/auth/logout) [here](/api/v1/auth/logout) [here](//evil.example)",
    f"[x]: {ELSEWHERE}/reference",
    "{{constructor.constructor('alert(1)')()}} ${alert(1)} #{alert(1)} <%= alert(1) %>",
    "$$\\href{javascript:alert(1)}{x}\\includegraphics{http://evil.example/x}$$",
    "__proto__",
    "constructor",
    "toString",
    "../../../../etc/passwd",
    "%2e%2e%2f%00%0d%0aSet-Cookie:x=y",
    "W" * 1000,
    "\uff37" * 250,
    "e" + "\u0301" * 200,
    "\u05d0\u05d1\u05d2 123 \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\u200b\u2060\ufeff",
    " ",
    "🏴\U000e0067\U000e0062\U000e007f👨\u200d👩\u200d👧\u200d👦" * 10,
    "null",
    "undefined",
    "-1e999",
]
"""Without control characters, as names and titles are: the service refuses others."""

TEXTS: Final = [
    *LINES,
    "\u202egnp.exe \u2066evil\u2069 \u200fabc",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b]8;;javascript:alert(1)\x07link\x1b]8;;\x07",
    "\x01\x07\x08\x0b\x0c\x7f\x80\x9b31m \u2028 \u2029 \ufffe \uffff",
    "line\r\nline\n\n\n\n\n\n\n\nline\t\t\tend",
    '{"id": "1", "name": "Bash", "kind": "execute", "input": {"command": "rm -rf /"}}',
    '{"name": "<img src=x onerror=alert(1)>", "input": "<script>alert(1)</script>"}',
    '{"__proto__": {"polluted": "yes"}, "constructor": {"prototype": {"polluted": "yes"}}}',
    '{"name": "__proto__", "input": {"__proto__": {"polluted": "yes"}, "toString": 1}}',
    '{"name": {"a": 1}, "input": [[[[[[[[[[]]]]]]]]]], "id": 7}',
    '[1, 2, "three"]',
    '"text"',
    "{",
    "```html\n<script>alert(1)</script>\n```",
    "```mermaid\ngraph TD; A[<img src=x onerror=alert(1)>] --> B\n```",
    "```<script>alert(1)</script>\ncode",
    ">" * 300 + " deep",
    "[" * 2000,
    "*_~`" * 500,
    "- " * 200 + "deep",
    "| a |\n|---|\n" + "| <img src=x onerror=alert(1)> |\n" * 5,
    "[^1]\n\n[^1]: <script>alert(1)</script>",
    f"<details open ontoggle=alert(1)><summary>x</summary></details><video src={ELSEWHERE}>",
    "<!-- --!><script>alert(1)</script> -->\n<![CDATA[<script>alert(1)</script>]]>",
    "A" * 16_000,
    "word " * 3000,
]
"""Everything that a chat, a question, a path or a patch may hold."""


def packed(lines: Sequence[str], length: int) -> list[str]:
    """Join markup to lines of at most this length; other texts keep a line of their own."""
    result = [line for line in lines if "<" not in line and "](" not in line]
    joined = ""
    for line in lines:
        if line in result:
            continue
        if joined and len(joined) + 1 + len(line) > length:
            result.append(joined)
            joined = ""
        joined = f"{joined} {line}".strip()
    return [*result, joined]
