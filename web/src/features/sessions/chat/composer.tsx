import { useQuery } from "@tanstack/react-query";
import { ArrowUp, Clock, ListPlus, Loader2, Square, Undo2, X, Zap } from "lucide-react";
import { memo, useEffect, useRef, useState, type ClipboardEvent } from "react";
import { api, ApiError, explain, UnreachableError, type Chat } from "@/api/client";
import { keys } from "@/api/query-keys";
import { refresh, useAction } from "@/api/use-action";
import { chatQuery, queueQuery } from "@/features/sessions/queries";
import { t } from "@/text";
import { Button } from "@/ui/button";
import { keepDraft, readDraft } from "@/ui/drafts";
import { Alert } from "@/ui/feedback";
import { notArrived, type Arrived, type Outgoing } from "./outgoing";
import { MOST_PICTURES, pastedPictures, readPicture, withPictures, type Picture } from "./pictures";

type Delivery = "queue" | "interrupt";

interface ComposerProps {
  targetId: string;
  status: string;
  name: string;
  /** Whether a message may have pictures. */
  pictures: boolean;
}

const newestOfUser = (chat: Chat): Arrived[] =>
  chat.messages.slice(-50).flatMap(({ id, role, content }) => (role === "user" ? [{ id, text: content }] : []));

/** Phones and tablets, which may show a keyboard on the screen. */
const TOUCH = matchMedia("(pointer: coarse) and (hover: none)");

/** Whether a keyboard is on the screen: it has no Shift+Enter, so there Enter is a new line. */
function typesOnScreen(): boolean {
  const { visualViewport } = window;
  return (
    TOUCH.matches && visualViewport !== null && window.innerHeight - visualViewport.height * visualViewport.scale > 150
  );
}

/** The message box, what waits in the queue, and what is being sent. */
export const Composer = memo(function Composer({ targetId, status, name, pictures: takesPictures }: ComposerProps) {
  const [text, setText] = useState(() => readDraft(targetId));
  const [error, setError] = useState<string>();
  const [outgoing, setOutgoing] = useState<readonly Outgoing[]>([]);
  const [pictures, setPictures] = useState<Picture[]>([]);
  const queue = useQuery(queueQuery(targetId)).data ?? [];
  const written = useQuery({ ...chatQuery(targetId), select: newestOfUser }).data ?? [];
  const busy = status === "generating" || status === "waiting_approval";
  const canSend = text.trim() !== "" || pictures.length > 0;

  useEffect(() => keepDraft(targetId, text), [targetId, text]);
  const latest = useRef(text);
  latest.current = text;
  const arrived: Arrived[] = [...written, ...queue.map(({ messageId, text }) => ({ id: messageId, text }))];
  const shown = notArrived(outgoing, arrived);
  if (shown !== outgoing) setOutgoing(shown);

  async function send(delivery: Delivery) {
    if (!canSend) return;
    const message = text;
    const attached = pictures;
    const key = crypto.getRandomValues(new Uint32Array(4)).join("-");
    const before = new Set(arrived.map(({ id }) => id));
    setOutgoing((all) => [...all, { key, text: message.trim() ? message : t("pictures.list"), before }]);
    setText("");
    setPictures([]);
    setError(undefined);
    const body =
      attached.length > 0 ? withPictures(message, attached, t("pictures.fallback", attached.length)) : { message };
    try {
      const sent = await api.post("/api/v1/shortcuts/{ideId}/chat", {
        path: { ideId: targetId },
        body: { ...body, delivery },
        idempotencyKey: key,
      });
      setOutgoing((all) =>
        all.map((message) => (message.key === key ? { ...message, id: sent.messageId ?? key } : message)),
      );
      // Events bring the message; this is for the case that they are lost.
      setTimeout(() => {
        setOutgoing((all) => all.filter((message) => message.key !== key));
        void refresh(keys.chat(targetId), keys.queue(targetId));
      }, 4000);
    } catch (failure) {
      setOutgoing((all) => all.filter((message) => message.key !== key));
      // Kept at once: the end of the log-in may have replaced this page already.
      const rest = latest.current;
      const restored = rest && rest !== message ? `${message}\n${rest}` : message;
      keepDraft(targetId, restored);
      setText(restored);
      setPictures((added) => [...attached, ...added].slice(0, MOST_PICTURES));
      if (failure instanceof ApiError && failure.code === "APPROVAL_PENDING") setError(t("message.waitsForAnswer"));
      else if (failure instanceof UnreachableError || (failure instanceof ApiError && failure.status === 504))
        setError(t("message.unknown"));
      else setError(t("message.refused", explain(failure)));
    }
  }

  async function paste(event: ClipboardEvent) {
    const files = pastedPictures(event.clipboardData);
    if (files.length === 0) return;
    event.preventDefault();
    setError(undefined);
    if (!takesPictures) return setError(t("pictures.none", name));
    try {
      const read = await Promise.all(files.map(readPicture));
      if (read.length + pictures.length > MOST_PICTURES) setError(t("pictures.most", MOST_PICTURES));
      setPictures((all) => [...all, ...read].slice(0, MOST_PICTURES));
    } catch {
      setError(t("pictures.unread"));
    }
  }

  const interrupt = useAction(
    async () => {
      setError(undefined);
      try {
        await api.post("/api/v1/shortcuts/{ideId}/interrupt", { path: { ideId: targetId } });
      } catch (failure) {
        // The turn ended in the meantime, which is what was wanted.
        if (!(failure instanceof ApiError && failure.code === "NOT_GENERATING")) throw failure;
      }
    },
    { changes: [keys.status(targetId)] },
  );
  const withdraw = useAction(
    async (messageId: string) => {
      setError(undefined);
      try {
        await api.delete("/api/v1/shortcuts/{ideId}/queue/{messageId}", { path: { ideId: targetId, messageId } });
      } catch (failure) {
        const sent = failure instanceof ApiError && (failure.status === 404 || failure.code === "ALREADY_SENT");
        throw sent ? new Error(t("queue.sent"), { cause: failure }) : failure;
      }
    },
    { changes: [keys.queue(targetId)] },
  );
  const failure = error ?? interrupt.error ?? withdraw.error;

  return (
    <div className="space-y-2">
      {(queue.length > 0 || shown.length > 0) && (
        <ul aria-label={t("queue.title")} className="space-y-1 text-sm">
          {queue.map((message) => (
            <li
              key={message.messageId}
              className="flex items-center gap-2 rounded-md border border-dashed border-line-strong py-0.5 pr-0.5 pl-2.5"
            >
              <Clock className="size-3.5 shrink-0 text-faint" aria-hidden />
              <span className="shrink-0 text-xs font-medium text-faint">{t("queue.title")}</span>
              <span className="min-w-0 grow truncate" title={message.text}>
                {message.text}
              </span>
              <Button
                look="quiet"
                icon={<Undo2 className="size-3.5" aria-hidden />}
                onClick={() => withdraw.run(message.messageId)}
              >
                {t("queue.withdraw")}
              </Button>
            </li>
          ))}
          {shown.map((message) => (
            <li
              key={message.key}
              className="flex h-9 items-center gap-2 rounded-md border border-dashed border-line-strong px-2.5 text-soft"
            >
              <Loader2 className="size-3.5 shrink-0 animate-turn text-faint" aria-hidden />
              <span className="shrink-0 text-xs font-medium text-faint">{t("message.sending")}</span>
              <span className="min-w-0 truncate">{message.text}</span>
            </li>
          ))}
        </ul>
      )}
      {failure && <Alert>{failure}</Alert>}
      <div className="rounded-lg border border-line-strong bg-raised focus-within:border-accent">
        {pictures.length > 0 && (
          <ul aria-label={t("pictures.list")} className="flex flex-wrap gap-2 p-2 pb-0">
            {pictures.map((picture, i) => (
              <li key={picture.key} className="relative">
                <img
                  src={`data:${picture.mimeType};base64,${picture.data}`}
                  alt={t("pictures.one", i + 1)}
                  className="size-16 rounded-md border border-line object-cover"
                />
                <button
                  type="button"
                  aria-label={t("pictures.remove", i + 1)}
                  onClick={() => setPictures((all) => all.filter(({ key }) => key !== picture.key))}
                  className="absolute -top-1.5 -right-1.5 flex size-6 items-center justify-center rounded-full border border-line-strong bg-raised text-soft hover:bg-hover"
                >
                  <X className="size-3.5" aria-hidden />
                </button>
              </li>
            ))}
          </ul>
        )}
        <textarea
          aria-label={t("message.label")}
          placeholder={t("message.placeholder", name)}
          title={t(TOUCH.matches ? "message.hintTouch" : "message.hint")}
          enterKeyHint={TOUCH.matches ? "enter" : "send"}
          rows={1}
          value={text}
          onChange={(event) => setText(event.target.value)}
          onPaste={(event) => void paste(event)}
          onKeyDown={(event) => {
            // The keys of the page are out of reach while they are typed here.
            if (event.key === "Escape" && !event.nativeEvent.isComposing) event.currentTarget.closest("main")?.focus();
            if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing || typesOnScreen()) return;
            event.preventDefault();
            void send("queue");
          }}
          className="block field-sizing-content max-h-[40dvh] min-h-10 w-full resize-none bg-transparent px-3 py-2.5 outline-none"
        />
        <div className="flex flex-wrap items-center justify-end gap-1.5 p-1.5 pt-0">
          {busy && (
            <Button
              look="quiet"
              className="mr-auto max-sm:px-2"
              busy={interrupt.busy}
              icon={<Square className="size-3.5" aria-hidden />}
              onClick={() => interrupt.run()}
            >
              {t("message.interrupt")}
            </Button>
          )}
          {busy && (
            <Button
              look="quiet"
              className="max-sm:px-2"
              disabled={!canSend}
              icon={<Zap className="size-3.5 max-sm:hidden" aria-hidden />}
              onClick={() => void send("interrupt")}
            >
              {t("message.interruptAndSend")}
            </Button>
          )}
          <Button
            look="primary"
            disabled={!canSend}
            icon={
              busy ? (
                <ListPlus className="size-4 max-sm:hidden" aria-hidden />
              ) : (
                <ArrowUp className="size-4" aria-hidden />
              )
            }
            onClick={() => void send("queue")}
          >
            {busy ? t("message.queue") : t("message.send")}
          </Button>
        </div>
      </div>
    </div>
  );
});
