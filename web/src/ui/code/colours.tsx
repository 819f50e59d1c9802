/** Colours of code and diffs, computed in a worker with a time limit. */
import type { ReactNode } from "react";
import type { HunkData, HunkTokens } from "react-diff-view";
import type { ColourRequest, ColourResponse, Node } from "./colour-worker";
import type { Language } from "./languages";
import { TimedWorker } from "./timed-worker";

/** Longer text, or text with a longer line, has no colours: drawing them would take the browser too long. */
const MAX_COLOURED = 100_000;
const MAX_LINE = 5000;

const worker = new TimedWorker<ColourRequest, ColourResponse>(
  () => new Worker(new URL("./colour-worker.ts", import.meta.url), { type: "module" }),
);

const longLine = new RegExp(`.{${MAX_LINE}}`);

/** Whether a text gets colours. */
export const isColoured = (text: string) => text.length <= MAX_COLOURED && !longLine.test(text);

/** The texts that were coloured last: a list of messages draws the same ones again and again. */
const recent = new Map<string, ReactNode>();
const RECENT = 200;

const key = (text: string, language: Language) => `${language}\n${text}`;

export function remembered(text: string, language: Language): ReactNode {
  return recent.get(key(text, language));
}

/** Colour a text, for `remembered`; one that takes too long stays as it is. */
export async function highlight(text: string, language: Language): Promise<void> {
  if (recent.has(key(text, language))) return;
  const response = await worker.ask({ text, language });
  recent.set(key(text, language), response && "tree" in response ? draw(response.tree) : text);
  if (recent.size > RECENT) recent.delete(recent.keys().next().value as string);
}

/** Colour the lines of a diff and mark what has changed inside them; undefined if that takes too long. */
export async function colourDiff(hunks: HunkData[], language: Language | undefined): Promise<HunkTokens | undefined> {
  const response = await worker.ask({ hunks, language });
  return response && "tokens" in response ? response.tokens : undefined;
}

function draw(nodes: Node[]): ReactNode {
  return nodes.map((node, i) =>
    node.type === "text" ? (
      node.value
    ) : (
      <span key={i} className={node.properties?.className?.join(" ")}>
        {draw(node.children ?? [])}
      </span>
    ),
  );
}
