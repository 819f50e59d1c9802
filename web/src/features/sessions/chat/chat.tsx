import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import {
  ArrowDown,
  Brain,
  Circle,
  CircleCheck,
  CircleDot,
  ListChecks,
  Loader2,
  MessageSquare,
  Wrench,
  type LucideIcon,
} from "lucide-react";
import { memo, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { explain } from "@/api/client";
import { useAction } from "@/api/use-action";
import { chatQuery, readEarlier } from "@/features/sessions/queries";
import { useDrafts } from "@/live";
import { t, type TextKey } from "@/text";
import { Button } from "@/ui/button";
import { cn } from "@/ui/cn";
import { CodeBlock, FIRST_CHARACTERS } from "@/ui/code/code";
import { Alert, Empty, Skeleton } from "@/ui/feedback";
import { Age } from "@/ui/time";
import { Fold, Row, firstLine } from "./fold";
import { chatItems, type Item } from "./items";
import { Markdown } from "./markdown";
import { currentStep, stepsOf, type Step } from "./plan";
import { ToolCall } from "./tool-call";

interface ChatProps {
  targetId: string;
  name: string;
  generating: boolean;
  /** Whether what is being written is read off a terminal's screen. */
  screen?: boolean;
  ended?: boolean;
}

/** This close to the beginning of what has been read, the messages before it are read too. */
const READ_AHEAD = 4000;

/** Guess the height of an item that has not been drawn yet, so that the scrollbar hardly jumps. */
function guessHeight(item: Item | undefined): number {
  if (item?.kind !== "message") return 34;
  if (item.message.kind !== "text") return 34;
  const { content, role } = item.message;
  const lines =
    content.length > 5000
      ? content.length / 60
      : content.split("\n").reduce((sum, line) => sum + 1 + Math.floor(line.length / 95), 0);
  return (role === "user" ? 64 : 42) + 22 * Math.min(400, lines);
}

/** The chat of a session: it stays at its newest message unless the user has scrolled up. */
export const Chat = memo(function Chat({ targetId, name, generating, screen, ended }: ChatProps) {
  const chat = useQuery(chatQuery(targetId));
  const drafts = useDrafts(targetId);
  const messages = chat.data?.messages;
  const items = useMemo(() => chatItems(messages ?? [], drafts), [messages, drafts]);
  const latest = useRef(items);
  latest.current = items;
  const scroller = useRef<HTMLDivElement>(null);
  const [atEnd, setAtEnd] = useState(true);
  const stick = useRef(true);
  const { run: readBefore, busy: reading, error: unread } = useAction(() => readEarlier(targetId));
  const earlier = messages?.[0]?.index ?? 0;

  const virtual = useVirtualizer({
    count: items.length,
    getScrollElement: () => scroller.current,
    // These two are the same functions in each render: otherwise all would be measured again.
    estimateSize: useCallback((i: number) => guessHeight(latest.current[i]), []),
    getItemKey: useCallback((i: number) => latest.current[i]?.id ?? i, []),
    // What is looked at stays where it is when earlier messages come before it.
    anchorTo: "end",
    initialOffset: 1e9,
    overscan: 10,
    paddingStart: earlier > 0 ? 56 : 16,
    paddingEnd: 24,
  });
  const height = virtual.getTotalSize();

  const toEnd = useCallback(() => {
    const element = scroller.current;
    if (element) element.scrollTop = element.scrollHeight;
  }, []);

  useLayoutEffect(() => {
    if (stick.current) toEnd();
  }, [height, items.length, generating, toEnd]);

  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const observer = new ResizeObserver(() => stick.current && toEnd());
    observer.observe(element);
    return () => observer.disconnect();
  }, [toEnd, chat.isPending]);

  const readIfNear = () => {
    const element = scroller.current;
    if (element && earlier > 0 && !reading && !unread && element.scrollTop < READ_AHEAD) readBefore();
  };
  useEffect(readIfNear);

  const onScroll = () => {
    const element = scroller.current;
    if (!element) return;
    const end = element.scrollHeight - element.scrollTop - element.clientHeight < 48;
    stick.current = end;
    setAtEnd(end);
    readIfNear();
  };

  if (chat.isPending) return <Skeleton rows={6} />;
  return (
    <div className="relative flex h-full flex-col">
      <div
        ref={scroller}
        onScroll={onScroll}
        role="log"
        aria-label={t("session.chat")}
        aria-busy={reading || undefined}
        tabIndex={0}
        className="min-h-0 grow overflow-y-auto overscroll-contain -outline-offset-2 [overflow-anchor:none]"
      >
        {chat.error && <Alert className="m-4">{explain(chat.error)}</Alert>}
        {items.length === 0 && !chat.error && !generating && (
          <Empty
            icon={<MessageSquare />}
            title={t(ended ? "session.noMessages" : "session.empty")}
            hint={ended ? undefined : t("session.emptyHint")}
          />
        )}
        <div className="relative w-full" style={{ height }}>
          {earlier > 0 && (
            <div className="absolute inset-x-0 top-3 flex h-8 items-center justify-center gap-2 text-sm text-faint">
              {unread ? (
                <>
                  {unread}
                  <Button onClick={() => readBefore()}>{t("app.retry")}</Button>
                </>
              ) : (
                <>
                  <Loader2 className="size-3.5 animate-turn" aria-hidden />
                  {t("session.earlier", earlier)}
                </>
              )}
            </div>
          )}
          {virtual.getVirtualItems().map((row) => {
            const item = items[row.index];
            return (
              item && (
                <div
                  key={row.key}
                  data-index={row.index}
                  ref={virtual.measureElement}
                  className="absolute inset-x-0 top-0 px-4 sm:px-6"
                  style={{ transform: `translateY(${row.start}px)` }}
                >
                  <ItemView item={item} name={name} generating={generating} screen={screen} />
                </div>
              )
            );
          })}
        </div>
        {generating && drafts.length === 0 && (
          <div className="px-4 pb-4 sm:px-6">
            <p className="mx-auto flex max-w-3xl items-center gap-2 text-sm text-working">
              <Loader2 className="size-3.5 animate-turn" aria-hidden />
              {name} {t("session.working")}
            </p>
          </div>
        )}
      </div>
      {!atEnd && (
        <Button
          // Beside the messages in a wide window, below them in others: it never covers any.
          className="rounded-full max-xl:my-1 max-xl:self-center xl:absolute xl:right-4 xl:bottom-3 xl:shadow-float"
          icon={<ArrowDown className="size-4" aria-hidden />}
          aria-label={t("session.latest")}
          title={t("session.latest")}
          onClick={() => {
            stick.current = true;
            toEnd();
          }}
        />
      )}
    </div>
  );
});

interface ItemProps extends Pick<ChatProps, "name" | "generating" | "screen"> {
  item: Item;
}

const ItemView = memo(function ItemView({ item, name, generating, screen }: ItemProps) {
  if (item.kind === "draft") {
    return (
      <Row className={item.continues && "py-1.5"}>
        {!item.continues && <Byline who={name} />}
        {screen ? <ScreenText text={item.draft.text} /> : <Markdown text={item.draft.text} streaming />}
      </Row>
    );
  }
  if (item.kind === "tool") return <ToolCall call={item.call} result={item.result} running={generating && item.open} />;
  const { message } = item;
  if (message.kind === "thinking") {
    const steps = stepsOf(message.content);
    if (steps) return <Plan steps={steps} />;
    return (
      <Fold icon={<Brain aria-hidden />} summary={t("session.thinking")} more={firstLine(message.content)}>
        <div className="text-sm text-soft">
          <Long text={message.content}>{(text) => <Markdown text={text} />}</Long>
        </div>
      </Fold>
    );
  }
  if (message.kind === "tool_result") {
    return (
      <Fold icon={<Wrench aria-hidden />} summary={t("session.result")} more={firstLine(message.content)}>
        <CodeBlock text={message.content} />
      </Fold>
    );
  }
  if (message.role === "user") {
    return (
      <Row>
        <div className="rounded-lg border border-line bg-sunken px-3.5 py-2.5">
          <Byline who={t("session.you")} at={message.timestamp} />
          <Long text={message.content}>{(text) => <p className="whitespace-pre-wrap wrap-anywhere">{text}</p>}</Long>
        </div>
      </Row>
    );
  }
  return (
    <Row className={item.continues && "py-1.5"}>
      {!item.continues && <Byline who={message.role === "system" ? "system" : name} at={message.timestamp} />}
      <Long text={message.content}>
        {(text) => (message.source === "screen" ? <ScreenText text={text} /> : <Markdown text={text} />)}
      </Long>
    </Row>
  );
});

/** What a terminal shows: its lines and columns have a meaning, its characters are not Markdown. */
const ScreenText = ({ text }: { text: string }) => (
  <pre className="font-mono text-sm whitespace-pre-wrap wrap-anywhere">{text}</pre>
);

const STEPS: Record<Step["state"], { icon: LucideIcon; look: string; label: TextKey }> = {
  done: { icon: CircleCheck, look: "text-good", label: "session.step.done" },
  current: { icon: CircleDot, look: "text-working", label: "session.step.current" },
  open: { icon: Circle, look: "text-faint", label: "session.step.open" },
};

/** The agent's plan: in one line the step that it is at, opened all of them. */
function Plan({ steps }: { steps: Step[] }) {
  const done = steps.filter(({ state }) => state === "done").length;
  return (
    <Fold
      icon={<ListChecks aria-hidden />}
      summary={t("session.plan", done, steps.length)}
      more={currentStep(steps)?.text}
    >
      <ol className="space-y-1 text-sm">
        {steps.map(({ text, state }, i) => {
          const { icon: Icon, look, label } = STEPS[state];
          return (
            <li key={i} className={cn("flex gap-2 wrap-anywhere", state === "current" ? "font-medium" : "text-soft")}>
              <Icon role="img" aria-label={t(label)} className={cn("mt-0.5 size-4 shrink-0", look)} />
              {text}
            </li>
          );
        })}
      </ol>
    </Fold>
  );
}

/** The beginning of a very long text, with a button that shows the rest. */
function Long({ text, children }: { text: string; children: (text: string) => React.ReactNode }) {
  const [whole, setWhole] = useState(false);
  if (whole || text.length <= FIRST_CHARACTERS) return children(text);
  return (
    <>
      {children(text.slice(0, FIRST_CHARACTERS))}
      <Button look="quiet" onClick={() => setWhole(true)}>
        {t("session.cut")}
      </Button>
    </>
  );
}

function Byline({ who, at }: { who: string; at?: number }) {
  return (
    <div className="mb-0.5 flex items-baseline gap-2 text-xs text-faint">
      <span className="min-w-0 truncate font-semibold text-soft">{who}</span>
      {at !== undefined && <Age at={at} />}
    </div>
  );
}
