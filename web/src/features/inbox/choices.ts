import type { ActionOption } from "@/api/client";

/** How a question can be answered: by Approve, Reject and further options, or by each option's own label. */
type Choices =
  | { kind: "approval"; approve: ActionOption; reject: ActionOption; more: ActionOption[] }
  | { kind: "choice"; options: ActionOption[] };

export const allows = (option: ActionOption) => option.kind.startsWith("allow");

/**
 * Return how to offer the options of a question.
 *
 * Approve and Reject can stand for options only where it is certain which ones they choose: where no
 * kind is offered twice, and there is something to approve and something to reject. Of "PostgreSQL /
 * SQLite / MySQL", for example, each one "allows once".
 */
export function choicesOf(options: ActionOption[]): Choices {
  const find = (kind: ActionOption["kind"]) => options.find((option) => option.kind === kind);
  const approve = find("allow_once") ?? find("allow_always");
  const reject = find("reject_once") ?? find("reject_always");
  const kinds = new Set(options.map((option) => option.kind));
  if (!approve || !reject || kinds.size < options.length) return { kind: "choice", options };
  return {
    kind: "approval",
    approve,
    reject,
    more: options.filter((option) => option !== approve && option !== reject),
  };
}
