import { Lexer, type MarkedToken, type Token, type Tokens } from "marked";
import { memo, useMemo, useState, type ReactNode } from "react";
import { CodeBlock } from "@/ui/code/code";
import { decodeEntities } from "./entities";
import { safeLink } from "./links";

/** Text nested deeper than this is shown unformatted: only a hostile agent nests so deep. */
const MAX_DEPTH = 24;

let mend: ((text: string) => string) | undefined;

/** Close what is still open in a text that is being written, as soon as what does it is loaded. */
function closed(text: string): string {
  if (mend) return mend(text);
  void import("remend").then(({ default: remend }) => {
    mend = (text) => remend(text, { htmlTags: false, images: false });
  });
  return text;
}

/** Return the blocks of a Markdown text; one that cannot be parsed is a single piece of text. */
export function parse(text: string, streaming: boolean): Token[] {
  try {
    // Text that is read from a terminal has a line end where the line ends.
    return new Lexer({ gfm: true, breaks: true }).lex(streaming ? closed(text) : text);
  } catch {
    return [{ type: "html", raw: text, text }];
  }
}

/** How many blocks at the end of a text may change when something is written after them. */
const OPEN_BLOCKS = 3;
/** Texts up to this length are parsed as a whole: finding what is complete would take as long. */
const LONG = 2000;

/**
 * Return a function like `parse` for a text that is being written. What grows by a few words a
 * hundred times a second is parsed from one of its last blocks on, not from its beginning.
 */
export function incrementalParser(long = LONG): (text: string) => Token[] {
  let done: Token[] = [];
  let doneText = "";
  return (text) => {
    if (!text.startsWith(doneText)) [done, doneText] = [[], ""];
    const rest = text.slice(doneText.length);
    if (rest.length <= long) return [...done, ...parse(rest, true)];
    const whole = parse(rest, false);
    const ready = whole.slice(0, Math.max(0, whole.length - OPEN_BLOCKS));
    const readyText = ready.map((token) => token.raw).join("");
    // Where the blocks are not exactly the text (line ends, tabs), all is parsed again each time.
    if (ready.length > 0 && rest.startsWith(readyText)) {
      done = [...done, ...ready];
      doneText += readyText;
    }
    return [...done, ...parse(text.slice(doneText.length), true)];
  };
}

function Anchor({ href, children }: { href: string | undefined; children: ReactNode }) {
  const address = safeLink(href);
  if (!address) return <span title={href}>{children}</span>;
  return (
    <a href={address} target="_blank" rel="noopener noreferrer" title={address}>
      {children}
    </a>
  );
}

function inline(tokens: Token[] | undefined, depth: number): ReactNode {
  if (!tokens) return null;
  if (depth > MAX_DEPTH) return tokens.map((token) => token.raw).join("");
  return tokens.map((token, i) => <Inline key={i} token={token} depth={depth + 1} />);
}

function Inline({ token: any, depth }: { token: Token; depth: number }): ReactNode {
  const token = any as MarkedToken;
  switch (token.type) {
    case "text":
      return token.tokens ? inline(token.tokens, depth) : decodeEntities(token.text);
    case "escape":
      return token.text;
    case "strong":
      return <strong>{inline(token.tokens, depth)}</strong>;
    case "em":
      return <em>{inline(token.tokens, depth)}</em>;
    case "del":
      return <del>{inline(token.tokens, depth)}</del>;
    case "codespan":
      return <code>{token.text}</code>;
    case "br":
      return <br />;
    case "checkbox":
      return <input type="checkbox" checked={token.checked} disabled aria-label={token.checked ? "☑" : "☐"} />;
    case "link":
      return (
        <Anchor href={token.autolink ? token.href : decodeEntities(token.href)}>{inline(token.tokens, depth)}</Anchor>
      );
    case "image":
      // Images are not loaded: requesting an address from an agent's text could leak what was read.
      return <Anchor href={decodeEntities(token.href)}>{token.text || token.href}</Anchor>;
    default:
      return (token as Token).raw; // HTML too: it stays text
  }
}

function blocks(tokens: Token[], depth: number): ReactNode {
  if (depth > MAX_DEPTH) return <p>{tokens.map((token) => token.raw).join("")}</p>;
  return tokens.map((token, i) => <Block key={i} token={token} depth={depth + 1} />);
}

function table(token: Tokens.Table, depth: number): ReactNode {
  const style = (align: "center" | "left" | "right" | null) => (align ? { textAlign: align } : undefined);
  return (
    <div className="overflow-x-auto" tabIndex={0}>
      <table>
        <thead>
          <tr>
            {token.header.map((cell, i) => (
              <th key={i} style={style(cell.align)}>
                {inline(cell.tokens, depth)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {token.rows.map((row, i) => (
            <tr key={i}>
              {row.map((cell, j) => (
                <td key={j} style={style(cell.align)}>
                  {inline(cell.tokens, depth)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function list(token: Tokens.List, depth: number): ReactNode {
  const items = token.items.map((item, i) => (
    <li key={i} className={item.task ? "task" : undefined}>
      {blocks(item.tokens, depth)}
    </li>
  ));
  return token.ordered ? <ol start={token.start === "" ? 1 : token.start}>{items}</ol> : <ul>{items}</ul>;
}

interface BlockProps {
  token: Token;
  depth: number;
}

// A message that is being written grows at its end: the blocks before stay as they are.
const Block = memo(
  function Block({ token: any, depth }: BlockProps): ReactNode {
    const token = any as MarkedToken;
    switch (token.type) {
      case "space":
      case "def":
        return null;
      case "heading": {
        const Heading = `h${Math.min(token.depth + 2, 6)}` as "h3";
        return <Heading>{inline(token.tokens, depth)}</Heading>;
      }
      case "code":
        return <CodeBlock text={token.text} language={token.lang} />;
      case "blockquote":
        return <blockquote>{blocks(token.tokens, depth)}</blockquote>;
      case "list":
        return list(token, depth);
      case "hr":
        return <hr />;
      case "table":
        return table(token, depth);
      case "paragraph":
        return <p>{inline(token.tokens, depth)}</p>;
      case "html":
        return <p className="whitespace-pre-wrap">{token.raw.trimEnd()}</p>;
      default:
        return <Inline token={token} depth={depth} />;
    }
  },
  (before, after) =>
    before.token.raw === after.token.raw && before.token.type === after.token.type && before.depth === after.depth,
);

/** Markdown of an agent. `streaming`: it is still being written. */
export const Markdown = memo(function Markdown({ text, streaming = false }: { text: string; streaming?: boolean }) {
  const [parseGrowing] = useState(() => incrementalParser());
  const tokens = useMemo(() => (streaming ? parseGrowing(text) : parse(text, false)), [text, streaming, parseGrowing]);
  // The key has blocks drawn anew once the whole is known: a link may be defined further down.
  return (
    <div className="prose" key={String(streaming)}>
      {blocks(tokens, 0)}
    </div>
  );
});
