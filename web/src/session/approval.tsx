import { CircleHelp } from "lucide-react";
import { Suspense, useState } from "react";
import { api, ApiError, explain, type ActionOption, type PendingAction } from "@/api/client";
import { queryClient } from "@/api/queries";
import { t, visible } from "@/text";
import { Button } from "@/ui/button";
import { cn } from "@/ui/cn";
import { Alert } from "@/ui/feedback";
import { Confirm } from "@/ui/lazy-confirm";
import { Menu } from "@/ui/menu";

type Answer = { action: "approve" | "reject"; optionId?: string };

const isApproval = (option: ActionOption) => option.kind.startsWith("allow");

/** Return the options that Approve and Reject do not choose. */
function otherOptions(action: PendingAction): ActionOption[] {
  const first = (kinds: string[]) => {
    for (const kind of kinds) {
      const option = action.options.find((one) => one.kind === kind);
      if (option) return option.id;
    }
    return undefined;
  };
  const chosen = [first(["allow_once"]), first(["reject_once"])];
  return action.options.filter((option) => !chosen.includes(option.id));
}

/**
 * Answer a question. The answer counts as given only when the service says so; the question leaves
 * the page with the event or the state that no longer has it.
 */
export function useAnswer(targetId: string, action: PendingAction, onElsewhere: (text: string) => void) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string>();
  const [always, setAlways] = useState<ActionOption>();

  async function give(answer: Answer): Promise<void> {
    setBusy(true);
    setError(undefined);
    try {
      await api.post("/api/v1/shortcuts/{ideId}/approve", {
        path: { ideId: targetId },
        body: { ...answer, actionId: action.id },
      });
    } catch (failure) {
      setBusy(false);
      // The card goes with its question; the sentence has to be read all the same.
      if (failure instanceof ApiError && failure.status === 409) onElsewhere(t("approval.elsewhere"));
      else setError(explain(failure));
    }
    // Not awaited by the buttons: they stay disabled until the question has gone.
    await Promise.all([
      queryClient.invalidateQueries({ queryKey: ["status", targetId] }),
      queryClient.invalidateQueries({ queryKey: ["approvals"] }),
      queryClient.invalidateQueries({ queryKey: ["sessions"] }),
    ]);
    setBusy(false);
  }

  function choose(option: ActionOption): void {
    if (option.kind === "allow_always") setAlways(option);
    else void give({ action: isApproval(option) ? "approve" : "reject", optionId: option.id });
  }

  const approve = () => {
    const once = action.options.some((option) => option.kind === "allow_once");
    const forever = action.options.find((option) => option.kind === "allow_always");
    // Where nothing but "always" allows it, Approve asks before that as well.
    if (!once && forever) setAlways(forever);
    else void give({ action: "approve" });
  };
  return { busy, error, always, setAlways, give, choose, approve, reject: () => void give({ action: "reject" }) };
}

interface CardProps {
  targetId: string;
  action: PendingAction;
  name: string;
  answer: ReturnType<typeof useAnswer>;
  /** What stands above the question, such as where it comes from. */
  children?: React.ReactNode;
}

/** A pending action with its answers. */
export function ApprovalCard({ action, name, answer, children }: CardProps) {
  const [whole, setWhole] = useState(false);
  const message = visible(action.message);
  const long = message.length > 700 || message.split("\n").length > 12;
  const others = otherOptions(action);
  return (
    <section aria-label={t("approval.question", name)} className="rounded-lg border border-waiting-line bg-waiting-soft p-3">
      {children}
      <h2 className="flex items-center gap-1.5 text-sm wrap-anywhere text-waiting">
        <CircleHelp className="size-4 shrink-0" strokeWidth={2.25} aria-hidden />
        {t("approval.question", name)}
      </h2>
      <pre
        tabIndex={long ? 0 : undefined}
        className={cn(
          "mt-2 overflow-auto rounded-md border border-waiting-line bg-ground px-3 py-2 font-mono text-sm whitespace-pre-wrap wrap-anywhere",
          !whole && "max-h-48",
          whole && "max-h-[60dvh]",
        )}
      >
        {message}
      </pre>
      {long && !whole && (
        <Button look="quiet" onClick={() => setWhole(true)}>
          {t("approval.wholeQuestion")}
        </Button>
      )}
      {answer.error && <Alert className="mt-2">{answer.error}</Alert>}
      <div className="mt-3 flex flex-wrap gap-2">
        <Button look="primary" busy={answer.busy} onClick={answer.approve} className="max-sm:grow">
          {t("approval.approve")}
        </Button>
        <Button disabled={answer.busy} onClick={answer.reject} className="max-sm:grow">
          {t("approval.reject")}
        </Button>
        {others.length > 0 && (
          <Menu
            label={t("approval.more")}
            disabled={answer.busy}
            items={others.map((option) => ({ label: visible(option.label), onSelect: () => answer.choose(option) }))}
          />
        )}
      </div>
      <Suspense>
        {answer.always && (
          <Confirm
            open
            onOpenChange={(open) => !open && answer.setAlways(undefined)}
            title={t("approval.always")}
            why={t("approval.alwaysWhy", visible(answer.always.label))}
            action={visible(answer.always.label)}
            danger={false}
            onConfirm={async () => {
              const option = answer.always;
              answer.setAlways(undefined);
              if (option) await answer.give({ action: "approve", optionId: option.id });
            }}
          />
        )}
      </Suspense>
    </section>
  );
}

interface SessionApprovalProps {
  targetId: string;
  action: PendingAction;
  name: string;
  /** Called with a sentence if the question was answered elsewhere. */
  onElsewhere: (text: string) => void;
}

export function SessionApproval({ targetId, action, name, onElsewhere }: SessionApprovalProps) {
  return <ApprovalCard targetId={targetId} action={action} name={name} answer={useAnswer(targetId, action, onElsewhere)} />;
}
