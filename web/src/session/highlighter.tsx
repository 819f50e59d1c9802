/** Colours code. Its own chunk, loaded with the first piece of code. */
import { createLowlight } from "lowlight";
import type { ReactNode } from "react";
import { GRAMMARS, type Language } from "./languages";

export const lowlight = createLowlight();

/** The texts that were coloured last: a list of messages draws the same ones again and again. */
const recent = new Map<string, ReactNode>();
const RECENT = 200;

const key = (text: string, language: Language) => `${language}\n${text}`;

export function remembered(text: string, language: Language): ReactNode {
  return recent.get(key(text, language));
}

/** Load the grammar of a language, if that has not been done yet. */
export async function load(language: Language): Promise<void> {
  if (!lowlight.registered(language)) lowlight.register(language, (await GRAMMARS[language]()).default);
}

export async function highlight(text: string, language: Language): Promise<void> {
  await load(language);
  const tree = lowlight.highlight(language, text);
  recent.set(key(text, language), draw(tree.children as Node[]));
  if (recent.size > RECENT) recent.delete(recent.keys().next().value as string);
}

interface Node {
  type: string;
  value?: string;
  properties?: { className?: string[] };
  children?: Node[];
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
