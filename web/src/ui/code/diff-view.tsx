import { useEffect, useMemo, useState } from "react";
import { Diff, Hunk, parseDiff, type FileData, type HunkData, type HunkTokens } from "react-diff-view";
import "react-diff-view/style/index.css";
import { t } from "@/text";
import { Button } from "@/ui/button";
import { colourDiff } from "./colours";
import { languageOf } from "./languages";
import { firstLines, withShortLines } from "./long-diff";

/** More lines than this are shown without colours, which would take the browser too long. */
const MAX_COLOURED = 2000;
/** So many lines are shown at first, and more each time that they are asked for. */
const LINES = 2000;

const CUT = /^\\ \[outrider:/m;

function parse(patch: string): FileData | undefined {
  try {
    const file = parseDiff(patch, { nearbySequences: "zip" })[0];
    return file && { ...file, hunks: withShortLines(file.hunks, (n) => t("changes.restOfLine", n)) };
  } catch {
    return undefined; // cut in the middle of a header
  }
}

const count = (hunks: HunkData[]) => hunks.reduce((sum, hunk) => sum + hunk.changes.length, 0);

/** The changes of a file, as a unified patch has them. */
export default function DiffView({ patch, path }: { patch: string; path: string }) {
  const file = useMemo(() => parse(patch), [patch]);
  const [shown, setShown] = useState(LINES);
  const [tokens, setTokens] = useState<{ file: FileData; of: HunkTokens | undefined }>();
  useEffect(() => {
    if (!file || count(file.hunks) > MAX_COLOURED) return;
    let current = true;
    void colourDiff(file.hunks, languageOf(path)).then((of) => current && setTokens({ file, of }));
    return () => {
      current = false;
    };
  }, [file, path]);
  if (!file)
    return <pre className="overflow-x-auto p-3 font-mono text-sm whitespace-pre-wrap wrap-anywhere">{patch}</pre>;
  if (file.hunks.length === 0) return <p className="px-4 py-3 text-sm text-faint">{t("changes.noLines")}</p>;
  const more = count(file.hunks) - shown;
  return (
    <>
      <Diff
        viewType="unified"
        diffType={file.type}
        hunks={firstLines(file.hunks, shown)}
        tokens={tokens?.file === file ? tokens.of : null}
        optimizeSelection={false}
      >
        {(hunks) =>
          hunks.flatMap((hunk) => [
            <HunkHeader key={`@${hunk.content}`} text={hunk.content} />,
            <Hunk key={hunk.content} hunk={hunk} />,
          ])
        }
      </Diff>
      {more > 0 && (
        <Button look="quiet" onClick={() => setShown(shown + LINES)}>
          {t("changes.moreLines", Math.min(more, LINES))}
        </Button>
      )}
      {CUT.test(patch) && <p className="px-4 py-2 text-sm text-waiting">{t("changes.cutHere")}</p>}
    </>
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
