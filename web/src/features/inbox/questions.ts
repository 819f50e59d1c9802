import type { Approval } from "@/api/client";

/** A question that the inbox shows; one that is not open any more keeps its place. */
export interface Question {
  approval: Approval;
  open: boolean;
}

/** So many questions that are not open any more are shown at most. */
const MAX_ANSWERED = 50;

/**
 * Return the questions to show, given those shown before and those open now.
 *
 * What has been shown stays in its place, and new ones come at the end: nothing moves while
 * somebody may be about to press a button. `shown` itself is returned if nothing has changed.
 */
export function withOpen(shown: Question[], open: readonly Approval[]): Question[] {
  const latest = new Map(open.map((approval) => [approval.action.id, approval]));
  const shownIds = new Set(shown.map(({ approval }) => approval.action.id));
  const staying = shown.map((question) => {
    const approval = latest.get(question.approval.action.id);
    if (approval === undefined) return question.open ? { ...question, open: false } : question;
    return question.open && question.approval === approval ? question : { approval, open: true };
  });
  const added = open.filter(({ action }) => !shownIds.has(action.id)).map((approval) => ({ approval, open: true }));
  const same = added.length === 0 && staying.every((question, i) => question === shown[i]);
  if (same) return shown;
  let surplus = staying.filter((question) => !question.open).length - MAX_ANSWERED;
  return [...staying.filter((question) => question.open || surplus-- <= 0), ...added];
}
