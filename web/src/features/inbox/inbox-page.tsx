import { getRouteApi, Link } from "@tanstack/react-router";
import { Check, Inbox, X } from "lucide-react";
import { useCallback, useEffect, useEffectEvent, useRef, useState } from "react";
import { explain, type ActionOption } from "@/api/client";
import { useFleet } from "@/features/sessions/fleet";
import { t, visible } from "@/text";
import { Alert, Empty, Skeleton } from "@/ui/feedback";
import { Page } from "@/ui/page";
import { Age } from "@/ui/time";
import { allows } from "./choices";
import { QuestionCard, subjectOf } from "./question-card";
import { withOpen, type Question } from "./questions";
import { useAnswer } from "./use-answer";

const route = getRouteApi("/shell/inbox");

/**
 * Return every open question, and those that were answered since: they keep their place, as high as
 * they were, until nothing can move under a finger or a pointer.
 */
function useQuestions(): { questions: Question[]; forget: () => void } {
  const { approvals } = useFleet();
  const [shown, setShown] = useState<Question[]>([]);
  const questions = withOpen(shown, approvals);
  if (questions !== shown) setShown(questions);
  const forget = useCallback(
    () => setShown((all) => (all.every(({ open }) => open) ? all : all.filter(({ open }) => open))),
    [],
  );
  useEffect(() => {
    const onHide = () => document.hidden && forget();
    document.addEventListener("visibilitychange", onHide);
    return () => document.removeEventListener("visibilitychange", onHide);
  }, [forget]);
  return { questions, forget };
}

/** Every open question of the account, the oldest first. */
export function InboxPage() {
  const { places, isPending, error } = useFleet();
  const { questions, forget } = useQuestions();
  const { question: selected } = route.useSearch();
  const navigate = route.useNavigate();
  const names = new Map(places.map(({ session }) => [session.id, session.name]));
  const anyOpen = questions.some(({ open }) => open);
  return (
    <Page
      title={t("inbox.title")}
      actions={anyOpen && <span className="text-xs text-faint max-md:hidden">{t("inbox.keys")}</span>}
    >
      {questions.length > 0 && (
        <ul
          aria-label={t("inbox.list")}
          className="mx-auto max-w-3xl space-y-3 p-4 sm:p-6"
          // A finger leaves with each tap, and may come back to the same spot; a mouse does not. Nor do
          // keys press what is at a spot, nor does a finger that scrolls.
          onPointerLeave={(event) => event.pointerType === "mouse" && forget()}
          onKeyDown={forget}
          onTouchMove={forget}
        >
          {questions.map((question) => (
            <InboxCard
              key={question.approval.action.id}
              question={question}
              selected={question.approval.action.id === selected}
              onSelect={(id) => void navigate({ search: { question: id }, replace: true })}
              name={names.get(question.approval.sessionId) ?? question.approval.type}
            />
          ))}
        </ul>
      )}
      {anyOpen ? null : error ? (
        <Alert className="m-4">{explain(error)}</Alert>
      ) : isPending ? (
        <Skeleton />
      ) : (
        <Empty icon={<Inbox />} title={t("inbox.none")} hint={t("inbox.noneHint")} />
      )}
    </Page>
  );
}

/** Give the focus to the next open question after a card, or the one before it, or else to the page. */
function focusNext(card: HTMLElement, options: FocusOptions): void {
  const cards = [...(card.parentElement?.children ?? [])] as HTMLElement[];
  const at = cards.indexOf(card);
  const next = [...cards.slice(at + 1), ...cards.slice(0, at).reverse()].find(({ dataset }) => "row" in dataset);
  (next ?? card.closest("main"))?.focus(options);
}

interface CardProps {
  question: Question;
  name: string;
  /** Whether the address names it. */
  selected: boolean;
  onSelect: (id: string) => void;
}

function InboxCard({ question: { approval, open }, name, selected, onSelect }: CardProps) {
  const { action, targetId, workspace } = approval;
  const answer = useAnswer(targetId, action);
  const card = useRef<HTMLLIElement>(null);
  const [height, setHeight] = useState<number>();
  const [answeredHere, setAnsweredHere] = useState(false);
  if (answer.busy && !answeredHere) setAnsweredHere(true);

  const passFocusOn = useEffectEvent((element: HTMLElement) => {
    const focused = document.activeElement;
    // After a key, the next card is scrolled to; a finger would find something else below it.
    if (focused === element) focusNext(element, {});
    else if (focused === document.body && answeredHere) focusNext(element, { preventScroll: true });
  });
  useEffect(() => {
    const element = card.current;
    if (!open || !element) return;
    const observer = new ResizeObserver(() => setHeight(element.offsetHeight));
    observer.observe(element);
    return () => {
      observer.disconnect();
      passFocusOn(element);
    };
  }, [open]);

  const [atFirst] = useState(selected);
  useEffect(() => {
    // After a reload, or back from its session.
    if (atFirst && document.activeElement === document.body) card.current?.focus();
  }, [atFirst]);

  if (!open) {
    return (
      <li ref={card} tabIndex={-1} style={{ minHeight: height }} className="flex outline-none">
        <Answered given={answer.given} subject={subjectOf(action)} />
      </li>
    );
  }
  return (
    <li
      ref={card}
      data-row
      tabIndex={-1}
      onKeyDown={answer.onKeyDown}
      onFocus={() => !selected && onSelect(action.id)}
      className="rounded-lg focus:outline-2 focus:outline-offset-2 focus:outline-accent"
    >
      <QuestionCard action={action} name={name} answer={answer}>
        <div className="mb-2 flex flex-wrap items-baseline gap-x-2.5 text-sm">
          <Link to="/sessions/$targetId" params={{ targetId }} className="min-w-0 truncate font-medium hover:underline">
            {visible(approval.title ?? approval.type)}
          </Link>
          <span className="truncate text-soft" title={workspace ? visible(workspace.path) : undefined}>
            {visible([approval.nickname, workspace?.path].filter(Boolean).join(" · "))}
          </span>
          <Age at={approval.createdAt} className="ml-auto text-xs text-soft" />
        </div>
      </QuestionCard>
    </li>
  );
}

/** What became of a question, in the place of its card. */
function Answered({ given, subject }: { given: ActionOption | undefined; subject: string }) {
  const Icon = given && allows(given) ? Check : X;
  return (
    <p className="flex min-w-0 grow gap-1.5 rounded-lg border border-dashed border-line px-3 py-2 text-sm text-soft">
      {given && <Icon className="mt-0.5 size-4 shrink-0 text-faint" aria-hidden />}
      <span className="min-w-0 truncate">
        {given ? t("inbox.answered", visible(given.label), subject) : t("inbox.elsewhere", subject)}
      </span>
    </p>
  );
}
