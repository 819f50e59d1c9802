import { lazy, Suspense } from "react";
import type { FileDiff } from "@/api/client";
import { t, visible } from "@/text";

const DiffView = lazy(() => import("./diff-view"));

/** Return how many lines patches add and remove. */
export function linesChanged(diffs: readonly FileDiff[]): { additions: number; deletions: number } {
  let [additions, deletions] = [0, 0];
  for (const { patch } of diffs) {
    // The headers come before the first hunk.
    const changes = patch.slice(Math.max(0, patch.search(/^@@/m)));
    additions += changes.match(/^\+/gm)?.length ?? 0;
    deletions += changes.match(/^-/gm)?.length ?? 0;
  }
  return { additions, deletions };
}

/** What a tool call changes in files, in colours. */
export function FileDiffs({ diffs }: { diffs: readonly FileDiff[] }) {
  return (
    <ul className="space-y-2">
      {diffs.map(({ path, patch }, i) => (
        <li key={i} className="overflow-clip rounded-md border border-line bg-ground">
          <p className="border-b border-line bg-sunken px-2.5 py-1 font-mono text-xs wrap-anywhere text-soft">
            {visible(path)}
          </p>
          {patch ? (
            // As high as the diff will be: nothing below moves when that is loaded.
            <Suspense
              fallback={<pre className="overflow-hidden px-3 font-mono text-xs leading-[1.6]">{visible(patch)}</pre>}
            >
              <DiffView patch={visible(patch)} path={path} />
            </Suspense>
          ) : (
            <p className="px-3 py-2 text-sm text-faint">{t("changes.unknown")}</p>
          )}
        </li>
      ))}
    </ul>
  );
}
