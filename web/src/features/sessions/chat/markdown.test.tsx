import { renderToStaticMarkup } from "react-dom/server";
import { expect, test, vi } from "vitest";
import { incrementalParser, Markdown, parse } from "./markdown";

const html = (text: string, streaming = false) =>
  renderToStaticMarkup(<Markdown text={text} streaming={streaming} />).replace(/^<div class="prose">|<\/div>$/g, "");

test.each([
  ["# Title", "<h3>Title</h3>"],
  ["a **b** *c* ~~d~~ `e & <f>`", "<p>a <strong>b</strong> <em>c</em> <del>d</del> <code>e &amp; &lt;f&gt;</code></p>"],
  ["- a\n- b", "<ul><li>a</li><li>b</li></ul>"],
  ["3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'],
  ["> a", "<blockquote><p>a</p></blockquote>"],
  ["Tom &amp; Jerry &#33; &unknown;", "<p>Tom &amp; Jerry ! &amp;unknown;</p>"],
  ["\\*a\\*", "<p>*a*</p>"],
  ["***", "<hr/>"],
])("%j is drawn as %s", (text, drawn) => {
  expect(html(text)).toBe(drawn);
});

test("a task has a box that nobody can tick", () => {
  expect(html("- [x] done")).toContain('<input type="checkbox" disabled="" aria-label="☑" checked=""/>');
});

test("a table has its heads and cells", () => {
  const drawn = html("| a | b |\n|---|:-:|\n| 1 | **2** |");
  expect(drawn).toContain('<th>a</th><th style="text-align:center">b</th>');
  expect(drawn).toContain('<td style="text-align:center"><strong>2</strong></td>');
});

test("code has its text, whatever is in it", () => {
  expect(html("```html\n<b onclick=x>\n```")).toContain("&lt;b onclick=x&gt;");
});

test.each([
  "<script>alert(1)</script>",
  "<img src=x onerror=alert(1)>",
  "a <b onmouseover=alert(1)>b</b>",
  "<svg><animate onbegin=alert(1)>",
  "<!-- x --><iframe src=javascript:alert(1)>",
  "&lt;script&gt;alert(1)&lt;/script&gt;",
  "[a](javascript:alert(1))",
  "[a](java&#115;cript:alert(1))",
  "[a]( data:text/html,<script>alert(1)</script>)",
  "![a](https://evil.example/x.png)",
  '![a](javascript:alert(1) "onerror=x")',
  "[a][x]\n\n[x]: javascript:alert(1)",
  "<javascript:alert(1)>",
  "<https://a.example/?<script>>",
])("%j becomes no element, no image and no script address", (text) => {
  const drawn = html(text);
  expect(drawn).not.toMatch(/<(?!\/?(?:p|a|span|em)\b)/);
  expect(drawn).not.toMatch(/href="(?!https?:|mailto:)/);
});

test("only a link to a page or a mailbox is one", () => {
  expect(html("[a](https://a.example/?b=1&amp;c=2)")).toContain('href="https://a.example/?b=1&amp;c=2"');
  expect(html("[a](/account)")).toBe('<p><span title="/account">a</span></p>');
});

test("what is still being written is shown as what it will be", async () => {
  await vi.waitFor(() => expect(html("a *b", true)).toContain("<em>"));
  expect(html("a **b", true)).toBe("<p>a <strong>b</strong></p>");
  expect(html("```py\nx = 1", true)).toContain("x = 1");
});

test.each([">".repeat(5000), "- ".repeat(3000) + "x", "[".repeat(20_000), "*".repeat(20_001), "`".repeat(9999)])(
  "text that nests without end is drawn all the same (%#)",
  (text) => {
    expect(html(text)).toContain("<");
  },
);

const GROWING = `# Title

A *paragraph* with \`code\`
over two lines.

- a
- b

  more of b
    1. deep

| a | b |
|---|---|
| 1 | 2 |

\`\`\`python
def f():

    return "- no list"
\`\`\`

> quoted
lazily

Setext
======

<b>html</b>

    indented code

* * *
The end.
`;

test("a text that grows is parsed like the whole at every length", () => {
  parse("", true); // loads what closes open marks
  const next = incrementalParser(0);
  const raws = (tokens: ReturnType<typeof parse>) => tokens.map(({ type, raw }) => [type, raw]);
  for (let end = 1; end <= GROWING.length; end += 1) {
    const text = GROWING.slice(0, end);
    expect(raws(next(text))).toEqual(raws(parse(text, true)));
  }
});

test("a text that is replaced is parsed anew", () => {
  const next = incrementalParser(0);
  next("a\n\nb\n\nc\n\nd\n\ne");
  expect(next("other").map(({ raw }) => raw)).toEqual(["other"]);
  const crlf = "a\r\n\r\nb\r\n\r\nc\r\n\r\nd\r\n\r\ne";
  expect(next(crlf).map(({ type }) => type)).toEqual(parse(crlf, true).map(({ type }) => type));
});
