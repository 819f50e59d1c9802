import { memo, type ComponentProps, type ReactNode } from "react";
import { defaultRehypePlugins, Streamdown, type StreamdownProps } from "streamdown";
import { CopyButton } from "@/ui/copy";
import { safeLink } from "./links";

// Raw HTML stays text: without this plugin it is never parsed.
const { raw: _raw, ...SAFE } = defaultRehypePlugins;
const REHYPE = Object.values(SAFE);
function Anchor({ href, children }: ComponentProps<"a">) {
  const address = safeLink(href);
  if (!address) return <span title={href}>{children}</span>;
  return (
    <a href={address} target="_blank" rel="noopener noreferrer" title={address}>
      {children}
    </a>
  );
}

/** Images are not loaded: an address in an agent's text could tell somebody what was read. */
function Picture({ src, alt }: ComponentProps<"img">) {
  const address = typeof src === "string" ? safeLink(src) : undefined;
  return <Anchor href={address}>{alt || address || "image"}</Anchor>;
}

function textOf(node: ReactNode): string {
  if (typeof node === "string" || typeof node === "number") return String(node);
  if (Array.isArray(node)) return node.map(textOf).join("");
  if (node && typeof node === "object" && "props" in node) return textOf((node.props as { children?: ReactNode }).children);
  return "";
}

function Pre({ children }: ComponentProps<"pre">) {
  return <CodeBlock text={textOf(children).replace(/\n$/, "")} />;
}

export function CodeBlock({ text }: { text: string }) {
  return (
    <div className="group/code relative">
      <pre className="overflow-x-auto rounded-md border border-line bg-sunken px-3 py-2.5" tabIndex={0}>
        <code className="font-mono text-sm">{text}</code>
      </pre>
      <div className="absolute top-1 right-1 rounded-md bg-sunken opacity-0 group-focus-within/code:opacity-100 group-hover/code:opacity-100">
        <CopyButton text={text} />
      </div>
    </div>
  );
}

const plain =
  <T extends keyof React.JSX.IntrinsicElements>(Tag: T) =>
  ({ children }: { children?: ReactNode }) => {
    const Element = Tag as "p";
    return <Element>{children}</Element>;
  };

const Table = ({ children }: { children?: ReactNode }) => (
  <div className="overflow-x-auto">
    <table>{children}</table>
  </div>
);

// Our own elements in place of Streamdown's, so that its classes and controls are not needed.
const COMPONENTS = {
  a: Anchor,
  img: Picture,
  pre: Pre,
  table: Table,
  code: plain("code"),
  h1: plain("h3"),
  h2: plain("h4"),
  h3: plain("h5"),
  h4: plain("h6"),
  h5: plain("h6"),
  h6: plain("h6"),
  ul: plain("ul"),
  ol: ({ children, start }: ComponentProps<"ol">) => <ol start={start}>{children}</ol>,
  li: plain("li"),
  blockquote: plain("blockquote"),
  hr: () => <hr />,
  strong: plain("strong"),
  thead: plain("thead"),
  tbody: plain("tbody"),
  tr: plain("tr"),
  th: plain("th"),
  td: plain("td"),
} as unknown as NonNullable<StreamdownProps["components"]>;

/** Markdown of an agent. `streaming`: it is still being written. */
export const Markdown = memo(function Markdown({ text, streaming }: { text: string; streaming?: boolean }) {
  return (
    <Streamdown
      className="prose"
      mode={streaming ? "streaming" : "static"}
      parseIncompleteMarkdown={streaming ?? false}
      rehypePlugins={REHYPE}
      components={COMPONENTS}
      controls={false}
      linkSafety={{ enabled: false }}
    >
      {text}
    </Streamdown>
  );
});
