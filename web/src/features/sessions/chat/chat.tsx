import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowDown, Loader2, MessageSquare } from "lucide-react";
import { memo, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { explain } from "@/api/client";
import { useAction } from "@/api/use-action";
import { chatQuery, readEarlier } from "@/features/sessions/queries";
import { useDrafts } from "@/live";
import { t } from "@/text";
import { Button } from "@/ui/button";
import { Alert, Empty, Skeleton } from "@/ui/feedback";
import { ItemView } from "./item-view";
import { chatItems, type Item } from "./items";

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
