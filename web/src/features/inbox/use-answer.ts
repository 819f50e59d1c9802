import { useEffect, useState, type KeyboardEvent } from "react";
import { api, ApiError, type ActionOption, type PendingAction } from "@/api/client";
import { keys } from "@/api/query-keys";
import { useAction } from "@/api/use-action";
import { t } from "@/text";
import { isTyping } from "@/ui/is-typing";
import { allows, choicesOf } from "./choices";

/** A question that comes so soon after an answer may take the place of the one that was answered. */
const FOLLOWS_MS = 10_000;
/** For how long such a question cannot be tapped: the tap may have been for the one before. */
const SETTLING_MS = 1000;
let answeredAt = -Infinity;

/** Whether a question has been answered in this tab. */
export const hasAnswered = (): boolean => answeredAt > 0;

/** Whether a question has just come, possibly under the finger that answered another one. */
function useSettling(): boolean {
  const [settling, setSettling] = useState(() => performance.now() - answeredAt < FOLLOWS_MS);
  useEffect(() => {
    if (!settling) return;
    const timer = setTimeout(() => setSettling(false), SETTLING_MS);
    return () => clearTimeout(timer);
  }, [settling]);
  return settling;
}

/**
 * Answer a question. The answer counts as given only when the service says so; the question leaves
 * the page with the event or the state that no longer has it. Until then its buttons are disabled.
 */
export function useAnswer(targetId: string, action: PendingAction, onElsewhere?: (text: string) => void) {
  /** A sentence that is no failure. */
  const [hint, setHint] = useState<string>();
  const [always, setAlways] = useState<ActionOption>();
  const [given, setGiven] = useState<ActionOption>();
  const settling = useSettling();
  const choices = choicesOf(action.options);

  async function answer(option: ActionOption): Promise<void> {
    setHint(undefined);
    answeredAt = performance.now();
    const path = { ideId: targetId };
    const decision = allows(option) ? "approve" : "reject";
    try {
      const body = { action: decision, optionId: option.id, actionId: action.id } as const;
      await api.post("/api/v1/shortcuts/{ideId}/approve", { path, body });
      setGiven(option);
    } catch (failure) {
      if (!(failure instanceof ApiError && failure.status === 409)) throw failure;
      // The card goes with its question; the sentence has to be read all the same.
      (onElsewhere ?? setHint)(t("approval.elsewhere"));
    }
  }
  const {
    run: give,
    busy,
    error,
  } = useAction(answer, { changes: [keys.status(targetId), keys.questions(), keys.sessions()] });

  /** Choose an option; before one that holds from now on, ask. */
  function choose(option: ActionOption): void {
    if (option.kind === "allow_always") setAlways(option);
    else give(option);
  }

  /** The keys of a card that has the focus, or something in it. */
  function onKeyDown(event: KeyboardEvent): void {
    const { key } = event;
    if (event.metaKey || event.ctrlKey || event.altKey || event.repeat || isTyping(event.target) || busy) return;
    if (choices.kind === "choice") {
      const option = /^[1-9]$/.test(key) ? choices.options[Number(key) - 1] : undefined;
      if (option) choose(option);
      else if (key === "a" || key === "r") setHint(t("approval.chooseByNumber"));
    } else if (key === "a") choose(choices.approve);
    else if (key === "r") choose(choices.reject);
  }

  return { busy, settling, error, hint, always, setAlways, given, give, choose, choices, onKeyDown };
}
