import { CircleHelp, Maximize2 } from "lucide-react";
import { Fragment, lazy, Suspense, useEffect, useId, useRef, useState, type KeyboardEvent } from "react";
import { api, ApiError, explain, type ActionOption, type FileDiff, type PendingAction } from "@/api/client";
import { keys } from "@/api/query-keys";
import { queryClient } from "@/api/query-client";
import { t, visible } from "@/text";
import { Button } from "@/ui/button";
import { cn } from "@/ui/cn";
import { Alert } from "@/ui/feedback";
import { isTyping } from "@/ui/is-typing";
import { Confirm } from "@/ui/lazy-confirm";
import { Menu } from "@/ui/menu";
import { allows, choicesOf } from "./choices";
import { FileDiffs } from "@/ui/code/file-diffs";

/** A question that comes so soon after an answer may take the place of the one that was answered. */
const FOLLOWS_MS = 10_000;
/** For how long such a question cannot be tapped: the tap may have been for the one before. */
const SETTLING_MS = 1000;
let answeredAt = -Infinity;

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
 * the page with the event or the state that no longer has it.
 */
export function useAnswer(targetId: string, action: PendingAction, onElsewhere?: (text: string) => void) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string>();
  /** A sentence that is no failure. */
  const [hint, setHint] = useState<string>();
  const [always, setAlways] = useState<ActionOption>();
  const [given, setGiven] = useState<ActionOption>();
  const settling = useSettling();
  const choices = choicesOf(action.options);

  async function give(option: ActionOption): Promise<void> {
    setBusy(true);
    setError(undefined);
    setHint(undefined);
    answeredAt = performance.now();
    try {
      await api.post("/api/v1/shortcuts/{ideId}/approve", {
        path: { ideId: targetId },
        body: { action: allows(option) ? "approve" : "reject", optionId: option.id, actionId: action.id },
      });
      setGiven(option);
    } catch (failure) {
      setBusy(false);
      if (failure instanceof ApiError && failure.status === 409) {
        // The card goes with its question; the sentence has to be read all the same.
        if (onElsewhere) onElsewhere(t("approval.elsewhere"));
        else setHint(t("approval.elsewhere"));
      } else setError(explain(failure));
    }
    // Not awaited by the buttons: they stay disabled until the question has gone.
    await Promise.all([
      queryClient.invalidateQueries({ queryKey: keys.status(targetId) }),
      queryClient.invalidateQueries({ queryKey: keys.questions() }),
      queryClient.invalidateQueries({ queryKey: keys.sessions() }),
    ]);
    setBusy(false);
  }

  /** Choose an option; before one that holds from now on, ask. */
  function choose(option: ActionOption): void {
    if (option.kind === "allow_always") setAlways(option);
    else void give(option);
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

/** Return what a question is about, in one line. */
export function subjectOf(action: PendingAction): string {
  return visible(action.message.split("\n").find((line) => line.trim() !== "") ?? "").trim().slice(0, 120);
}

type Answering = ReturnType<typeof useAnswer>;

interface CardProps {
  action: PendingAction;
  name: string;
  answer: Answering;
  /** What stands above the question, such as where it comes from. */
  children?: React.ReactNode;
}

/** A pending action with its answers. */
export function ApprovalCard({ action, name, answer, children }: CardProps) {
  const diff = action.diff ?? [];
  // What is not known of a change may be in the text.
  const changes = diff.length > 0 && diff.every(({ patch }) => patch !== "");
  return (
    <section aria-label={t("approval.question", name)} className="rounded-lg border border-waiting-line bg-waiting-soft p-3">
      {children}
      <h2 className="flex items-center gap-1.5 text-sm wrap-anywhere text-waiting">
        <CircleHelp className="size-4 shrink-0" strokeWidth={2.25} aria-hidden />
        {t("approval.question", name)}
      </h2>
      {changes ? <Changes title={subjectOf(action)} diff={diff} /> : <Text message={visible(action.message)} />}
      <Answers answer={answer} />
      {/* Below the buttons, which therefore stay where they are. */}
      {answer.error && <Alert className="mt-2">{answer.error}</Alert>}
      {answer.hint && (
        <Alert neutral className="mt-2">
          {answer.hint}
        </Alert>
      )}
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
              if (option) await answer.give(option);
            }}
          />
        )}
      </Suspense>
    </section>
  );
}

function Text({ message }: { message: string }) {
  const [whole, setWhole] = useState(false);
  const long = message.length > 700 || message.split("\n").length > 12;
  return (
    <>
      <pre
        tabIndex={long ? 0 : undefined}
        className={cn(
          "mt-2 max-h-48 overflow-auto rounded-md border border-waiting-line bg-ground px-3 py-2 font-mono text-sm whitespace-pre-wrap wrap-anywhere",
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
    </>
  );
}

const FullDiff = lazy(() => import("./full-diff"));

/** The edit that is asked for. */
function Changes({ title, diff }: { title: string; diff: FileDiff[] }) {
  const [full, setFull] = useState(false);
  return (
    <>
      <p className="mt-2 font-mono text-sm wrap-anywhere">{title}</p>
      <div
        role="region"
        aria-label={t("session.changes")}
        tabIndex={0}
        className="mt-2 max-h-[30dvh] overflow-auto rounded-md sm:max-h-[40dvh]"
      >
        <FileDiffs diffs={diff} />
      </div>
      <Button look="quiet" icon={<Maximize2 className="size-3.5" aria-hidden />} onClick={() => setFull(true)}>
        {t("approval.full")}
      </Button>
      <Suspense>{full && <FullDiff title={title} diff={diff} onClose={() => setFull(false)} />}</Suspense>
    </>
  );
}

function Answers({ answer: { choices, choose, busy, settling } }: { answer: Answering }) {
  const labels = useId();
  const disabled = busy || settling;
  if (choices.kind === "choice") {
    if (choices.options.length === 0) return <p className="mt-3 text-sm text-soft">{t("approval.noOptions")}</p>;
    return (
      <ol className="mt-3 space-y-1.5">
        {choices.options.map((option, i) => (
          <li key={option.id}>
            <Button
              disabled={disabled}
              onClick={() => choose(option)}
              className="h-auto min-h-8 w-full justify-start py-1.5 text-left font-normal whitespace-normal wrap-anywhere pointer-coarse:h-auto pointer-coarse:min-h-10"
            >
              <span className="w-4 shrink-0 text-faint tabular-nums max-md:hidden" aria-hidden>
                {i < 9 && i + 1}
              </span>
              {visible(option.label)}
            </Button>
          </li>
        ))}
      </ol>
    );
  }
  const { approve, reject, more } = choices;
  const chosen = [
    { id: `${labels}-approve`, button: t("approval.approve"), label: visible(approve.label) },
    { id: `${labels}-reject`, button: t("approval.reject"), label: visible(reject.label) },
  ].flatMap(({ id, button, label }) => (label === button ? [] : { id, text: t("approval.chooses", button, label) }));
  return (
    <>
      <div className="mt-3 flex flex-wrap gap-2">
        <Button
          look="primary"
          busy={busy}
          disabled={disabled}
          aria-describedby={`${labels}-approve`}
          onClick={() => choose(approve)}
          className="max-sm:grow"
        >
          {t("approval.approve")}
        </Button>
        <Button disabled={disabled} aria-describedby={`${labels}-reject`} onClick={() => choose(reject)} className="max-sm:grow">
          {t("approval.reject")}
        </Button>
        {more.length > 0 && (
          <Menu
            label={t("approval.more")}
            disabled={disabled}
            items={more.map((option) => ({ label: visible(option.label), onSelect: () => choose(option) }))}
          />
        )}
      </div>
      <p className="mt-2 text-xs wrap-anywhere text-soft">
        {chosen.map(({ id, text }, i) => (
          <Fragment key={id}>
            {i > 0 && " · "}
            <span id={id}>{text}</span>
          </Fragment>
        ))}
      </p>
    </>
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
  const answer = useAnswer(targetId, action, onElsewhere);
  const card = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const main = card.current?.closest("main");
    // With its question the card goes, and the focus with it; a finger must not bring a keyboard up.
    return () => {
      if (answeredAt > 0 && document.activeElement === document.body) main?.focus({ preventScroll: true });
    };
  }, []);
  return (
    <div
      ref={card}
      data-row
      tabIndex={-1}
      onKeyDown={answer.onKeyDown}
      className="rounded-lg focus:outline-2 focus:outline-offset-2 focus:outline-accent"
    >
      <ApprovalCard action={action} name={name} answer={answer} />
    </div>
  );
}
