/** The worker that colours code and marks the changes of lines: hostile text would stop the page itself. */
import dockerfile from "highlight.js/lib/languages/dockerfile";
import scala from "highlight.js/lib/languages/scala";
import { common, createLowlight } from "lowlight";
import type { HunkData, HunkTokens } from "react-diff-view";
import type { Language } from "./languages";

export interface ColourRequest {
  language: Language | undefined;
  /** Code, or the hunks of a diff. */
  text?: string;
  hunks?: HunkData[];
}

/** A piece of code in one colour, or a group of them. */
export interface Node {
  type: string;
  value?: string;
  properties?: { className?: string[] };
  children?: Node[];
}

/** The time limit begins with `started`: until then, files are loaded. */
export type ColourResponse = { started: true } | { tree: Node[] } | { tokens: HunkTokens } | { failed: true };

const lowlight = createLowlight({ ...common, dockerfile, scala });
const respond = (response: ColourResponse) => postMessage(response);

async function colour({ language, text, hunks }: ColourRequest): Promise<void> {
  try {
    if (hunks) {
      const { markEdits, tokenize } = await import("react-diff-view");
      respond({ started: true });
      const enhancers = [markEdits(hunks, { type: "block" })];
      const refractor = { highlight: (code: string, name: string) => lowlight.highlight(name, code).children };
      respond({
        tokens: tokenize(hunks, language ? { highlight: true, refractor, language, enhancers } : { enhancers }),
      });
    } else {
      respond({ started: true });
      respond({ tree: language ? lowlight.highlight(language, text ?? "").children : [] });
    }
  } catch {
    respond({ failed: true });
  }
}

addEventListener("message", ({ data }: MessageEvent<ColourRequest>) => void colour(data));
