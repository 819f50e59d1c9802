import { CircleHelp, Maximize2 } from "lucide-react";
import { Fragment, lazy, Suspense, useEffect, useId, useRef, useState } from "react";
import type { FileDiff, PendingAction } from "@/api/client";
import { t, visible } from "@/text";
import { Button } from "@/ui/button";
import { cn } from "@/ui/cn";
import { FileDiffs } from "@/ui/code/file-diffs";
import { Alert } from "@/ui/feedback";
import { Confirm } from "@/ui/lazy-confirm";
import { Menu } from "@/ui/menu";
import { hasAnswered, useAnswer } from "./use-answer";

/** Return what a question is about, in one line. */
export function subjectOf(action: PendingAction): string {
  return visible(action.message.split("\n").find((line) => line.trim() !== "") ?? "")
    .trim()
    .slice(0, 120);
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
export function QuestionCard({ action, name, answer, children }: CardProps) {
  const diff = action.diff ?? [];
  // What is not known of a change may be in the text.
  const changes = diff.length > 0 && diff.every(({ patch }) => patch !== "");
  return (
    <section
      aria-label={t("approval.question", name)}
      className="rounded-lg border border-waiting-line bg-waiting-soft p-3"
    >
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
            onConfirm={() => {
              const option = answer.always;
              answer.setAlways(undefined);
              if (option) answer.give(option);
              return Promise.resolve(); // what becomes of it is shown by the card
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
        <Button
          disabled={disabled}
          aria-describedby={`${labels}-reject`}
          onClick={() => choose(reject)}
          className="max-sm:grow"
        >
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

interface SessionQuestionProps {
  targetId: string;
  action: PendingAction;
  name: string;
  /** Called with a sentence if the question was answered elsewhere. */
  onElsewhere: (text: string) => void;
}

export function SessionQuestion({ targetId, action, name, onElsewhere }: SessionQuestionProps) {
  const answer = useAnswer(targetId, action, onElsewhere);
  const card = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const main = card.current?.closest("main");
    // With its question the card goes, and the focus with it; a finger must not bring a keyboard up.
    return () => {
      if (hasAnswered() && document.activeElement === document.body) main?.focus({ preventScroll: true });
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
      <QuestionCard action={action} name={name} answer={answer} />
    </div>
  );
}
