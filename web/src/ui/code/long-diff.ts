/** What of a diff with very many or very long lines is shown. */
import type { HunkData } from "react-diff-view";

/** Characters of a line; a browser takes seconds to lay out one of hundred thousands. */
const MAX_LINE = 2000;

/** Return hunks whose long lines end with a note about the characters that are left out. */
export function withShortLines(hunks: HunkData[], note: (left: number) => string): HunkData[] {
  return hunks.map((hunk) => ({
    ...hunk,
    changes: hunk.changes.map((change) => {
      const left = change.content.length - MAX_LINE;
      return left > 0 ? { ...change, content: `${change.content.slice(0, MAX_LINE)} ${note(left)}` } : change;
    }),
  }));
}

/** Return the hunks up to their first `count` lines. */
export function firstLines(hunks: HunkData[], count: number): HunkData[] {
  let left = count;
  return hunks.flatMap((hunk) => {
    const changes = hunk.changes.slice(0, Math.max(0, left));
    left -= hunk.changes.length;
    return changes.length === 0 ? [] : changes.length < hunk.changes.length ? [{ ...hunk, changes }] : [hunk];
  });
}
