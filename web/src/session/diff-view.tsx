import { useEffect, useMemo, useState } from "react";
import { Diff, Hunk, markEdits, parseDiff, tokenize, type FileData, type HunkTokens } from "react-diff-view";
import "react-diff-view/style/index.css";
import { t } from "@/text";
import { languageOf } from "./languages";

/** More lines than this are shown without colours, which would take the browser too long. */
const MAX_COLOURED = 2000;

function parse(patch: string): FileData | undefined {
  try {
    return parseDiff(patch, { nearbySequences: "zip" })[0];
  } catch {
    return undefined; // cut in the middle of a header
  }
}

/** Colour the lines and mark what has changed inside them. */
async function colour(file: FileData, path: string): Promise<HunkTokens | undefined> {
  const lines = file.hunks.reduce((sum, hunk) => sum + hunk.changes.length, 0);
  if (lines > MAX_COLOURED) return undefined;
  const enhancers = [markEdits(file.hunks, { type: "block" })];
  const language = languageOf(path);
  if (!language) return tokenize(file.hunks, { enhancers });
  const { load, lowlight } = await import("./highlighter");
  await load(language);
  const refractor = { highlight: (text: string, name: string) => lowlight.highlight(name, text).children };
  return tokenize(file.hunks, { highlight: true, refractor, language, enhancers });
}

/** The changes of a file, as git's patch has them. */
export default function DiffView({ patch, path }: { patch: string; path: string }) {
  const file = useMemo(() => parse(patch), [patch]);
  const [tokens, setTokens] = useState<{ file: FileData; of: HunkTokens | undefined }>();
  useEffect(() => {
    if (!file) return;
    let current = true;
    colour(file, path).then(
      (of) => current && setTokens({ file, of }),
      () => undefined, // without colours it can be read as well
    );
    return () => {
      current = false;
    };
  }, [file, path]);
  if (!file) return <pre className="overflow-x-auto p-3 font-mono text-sm whitespace-pre-wrap wrap-anywhere">{patch}</pre>;
  if (file.hunks.length === 0) return <p className="px-4 py-3 text-sm text-faint">{t("changes.noLines")}</p>;
  return (
    <Diff
      viewType="unified"
      diffType={file.type}
      hunks={file.hunks}
      tokens={tokens?.file === file ? tokens.of : null}
      optimizeSelection={false}
    >
      {(hunks) => hunks.flatMap((hunk) => [<HunkHeader key={`@${hunk.content}`} text={hunk.content} />, <Hunk key={hunk.content} hunk={hunk} />])}
    </Diff>
  );
}

const HunkHeader = ({ text }: { text: string }) => (
  <tbody>
    <tr>
      <td colSpan={3} className="bg-sunken px-3 py-1! font-mono text-xs text-faint">
        {text}
      </td>
    </tr>
  </tbody>
);
