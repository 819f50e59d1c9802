import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowDown, Brain, ChevronRight, Loader2, MessageSquare, Wrench } from "lucide-react";
import { memo, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { api, explain, type Message } from "@/api/client";
import { chatQuery } from "@/api/queries";
import { useDrafts } from "@/live";
import { t } from "@/text";
import { Button } from "@/ui/button";
import { cn } from "@/ui/cn";
import { Alert, Empty, Skeleton } from "@/ui/feedback";
import { Age } from "@/ui/time";
import { chatItems, readCall, type Item } from "./items";
import { CodeBlock, Markdown } from "./markdown";

interface ChatProps {
  targetId: string;
  name: string;
  generating: boolean;
}

/** The chat of a session: it stays at its newest message unless somebody has scrolled up. */
export function Chat({ targetId, name, generating }: ChatProps) {
  const client = useQueryClient();
  const chat = useQuery(chatQuery(targetId));
  const drafts = useDrafts(targetId);
  const messages = chat.data?.messages;
  const items = useMemo(() => chatItems(messages ?? [], drafts), [messages, drafts]);
  const scroller = useRef<HTMLDivElement>(null);
  const [atEnd, setAtEnd] = useState(true);
  const stick = useRef(true);
  const [loadingAll, setLoadingAll] = useState(false);
  const earlier = (chat.data?.totalMessages ?? 0) - (messages?.length ?? 0);

  const virtual = useVirtualizer({
    count: items.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => 96,
    getItemKey: (i) => items[i]?.id ?? i,
    overscan: 8,
    paddingStart: 16,
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

  const onScroll = () => {
    const element = scroller.current;
    if (!element) return;
    const end = element.scrollHeight - element.scrollTop - element.clientHeight < 48;
    stick.current = end;
    setAtEnd(end);
  };

  async function loadAll() {
    const element = scroller.current;
    const fromEnd = element ? element.scrollHeight - element.scrollTop : 0;
    setLoadingAll(true);
    try {
      const all = await api.get("/api/v1/shortcuts/{ideId}/chat", { path: { ideId: targetId } });
      client.setQueryData(chatQuery(targetId).queryKey, all);
      requestAnimationFrame(() => element && (element.scrollTop = element.scrollHeight - fromEnd));
    } finally {
      setLoadingAll(false);
    }
  }

  if (chat.isPending) return <Skeleton rows={6} />;
  return (
    <div className="relative h-full">
      <div
        ref={scroller}
        onScroll={onScroll}
        role="log"
        aria-label={t("session.chat")}
        tabIndex={0}
        className="h-full overflow-y-auto overscroll-contain -outline-offset-2"
      >
        {chat.error && <Alert className="m-4">{explain(chat.error)}</Alert>}
        {earlier > 0 && (
          <div className="flex justify-center pt-4">
            <Button busy={loadingAll} onClick={() => void loadAll()}>
              {t("session.earlier", earlier)}
            </Button>
          </div>
        )}
        {items.length === 0 && !chat.error && !generating && (
          <Empty icon={<MessageSquare />} title={t("session.empty")} hint={t("session.emptyHint")} />
        )}
        <div className="relative w-full" style={{ height }}>
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
                  <ItemView item={item} name={name} generating={generating} />
                </div>
              )
            );
          })}
        </div>
        {generating && drafts.length === 0 && (
          <p className="mx-auto flex max-w-3xl items-center gap-2 px-4 pb-4 text-sm text-working sm:px-6">
            <Loader2 className="size-3.5 animate-turn" aria-hidden />
            {name} {t("session.working")}
          </p>
        )}
      </div>
      {!atEnd && (
        <Button
          className="absolute right-4 bottom-3 rounded-full shadow-float"
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
}

const ItemView = memo(function ItemView({ item, name, generating }: { item: Item; name: string; generating: boolean }) {
  if (item.kind === "draft") {
    return (
      <Row>
        <Byline who={name} />
        <Markdown text={item.draft.text} streaming />
      </Row>
    );
  }
  if (item.kind === "tool") return <ToolCall call={item.call} result={item.result} running={generating} />;
  const { message } = item;
  if (message.kind === "thinking") {
    return (
      <Fold icon={<Brain className="size-3.5" aria-hidden />} summary={t("session.thinking")} more={firstLine(message.content)}>
        <div className="text-sm text-soft">
          <Markdown text={message.content} />
        </div>
      </Fold>
    );
  }
  if (message.kind === "tool_result") {
    return (
      <Fold icon={<Wrench className="size-3.5" aria-hidden />} summary={t("session.result")} more={firstLine(message.content)}>
        <CodeBlock text={message.content} />
      </Fold>
    );
  }
  if (message.role === "user") {
    return (
      <Row>
        <div className="rounded-lg border border-line bg-sunken px-3.5 py-2.5">
          <Byline who={t("session.you")} at={message.timestamp} />
          <p className="whitespace-pre-wrap wrap-anywhere">{message.content}</p>
        </div>
      </Row>
    );
  }
  return (
    <Row>
      <Byline who={message.role === "system" ? "system" : name} at={message.timestamp} />
      <Markdown text={message.content} />
    </Row>
  );
});

const Row = ({ children, tight }: { children: React.ReactNode; tight?: boolean }) => (
  <div className={cn("mx-auto max-w-3xl", tight ? "py-0.5" : "py-2.5")}>{children}</div>
);

function Byline({ who, at }: { who: string; at?: number }) {
  return (
    <div className="mb-0.5 flex items-baseline gap-2 text-xs text-faint">
      <span className="font-semibold text-soft">{who}</span>
      {at !== undefined && <Age at={at} />}
    </div>
  );
}

interface FoldProps {
  icon: React.ReactNode;
  summary: string;
  more?: string;
  note?: React.ReactNode;
  children: React.ReactNode;
}

function Fold({ icon, summary, more, note, children }: FoldProps) {
  const [open, setOpen] = useState(false);
  return (
    <Row tight>
      <div className="rounded-md">
        <button
          type="button"
          aria-expanded={open}
          onClick={() => setOpen(!open)}
          className="-mx-1.5 flex h-7 max-w-full items-center gap-1.5 rounded-md px-1.5 text-left text-sm text-soft hover:bg-hover pointer-coarse:h-9"
        >
          <ChevronRight className={cn("size-3.5 shrink-0 text-faint transition-transform", open && "rotate-90")} aria-hidden />
          <span className="shrink-0 text-faint">{icon}</span>
          <span className="max-w-[80%] shrink-0 truncate font-medium">{summary}</span>
          {more && <span className="min-w-0 truncate font-mono text-xs text-faint">{more}</span>}
          {note}
        </button>
        {open && <div className="mt-1 mb-2 space-y-2 border-l-2 border-line pl-4">{children}</div>}
      </div>
    </Row>
  );
}

function ToolCall({ call, result, running }: { call: Message; result: Message | undefined; running: boolean }) {
  const { name, summary, input } = useMemo(() => readCall(call.content), [call.content]);
  return (
    <Fold
      icon={<Wrench className="size-3.5" aria-hidden />}
      summary={name}
      more={summary}
      note={
        !result && running ? (
          <span className="flex shrink-0 items-center gap-1 text-xs text-working">
            <Loader2 className="size-3 animate-turn" aria-hidden />
            {t("session.running")}
          </span>
        ) : null
      }
    >
      <CodeBlock text={input} />
      {result && (
        <>
          <div className="text-xs font-semibold text-faint">{t("session.result")}</div>
          {result.content.trim() ? <CodeBlock text={result.content} /> : <p className="text-sm text-faint">{t("session.noResult")}</p>}
        </>
      )}
    </Fold>
  );
}

const firstLine = (text: string) => (text.trimStart().split("\n", 1)[0] ?? "").slice(0, 160);
