/** Applies events of the stream to what has been read, so that everything shown stays live. */
import type { QueryClient } from "@tanstack/react-query";
import type { Approval, DaemonStatus, Message, PendingAction, Session } from "@/api/client";
import { deltas } from "./deltas";
import { withMessage, type Chat } from "./messages";
import type { Frame } from "./sse";

interface EventBody {
  event: string;
  daemonId: string;
  targetId?: string;
  timestamp: number;
  payload: {
    session?: Session;
    message?: Message;
    messages?: unknown[];
    action?: PendingAction;
  };
}

/** The end of a message that an event has only the beginning of. */
const CUT = "[outrider: the rest is left out here; the chat has it]";

export function applyFrame(client: QueryClient, frame: Frame): void {
  if (frame.event === "stream:ready") {
    const { resume } = JSON.parse(frame.data) as { resume: string };
    // After `ok` the events follow; otherwise something may have been missed.
    if (resume !== "ok") {
      deltas.clear();
      void client.invalidateQueries();
    }
    return;
  }
  if (frame.event === "chat:delta") {
    const delta = JSON.parse(frame.data) as Parameters<typeof deltas.take>[0];
    if (!deltas.take(delta)) void client.invalidateQueries({ queryKey: ["chat", delta.targetId] });
    return;
  }
  if (frame.event.startsWith("stream:")) return;
  const body = JSON.parse(frame.data) as EventBody;
  const [kind] = body.event.split(":");
  if (kind === "machine") {
    void client.invalidateQueries({ queryKey: ["machines"] });
    void client.invalidateQueries({ queryKey: ["machine", body.daemonId] });
    // Questions of a machine that is offline cannot be answered; its sessions may have ended meanwhile.
    void client.invalidateQueries({ queryKey: ["sessions"] });
    void client.invalidateQueries({ queryKey: ["approvals"] });
    return;
  }
  const target = body.targetId;
  if (target === undefined) return;
  if (body.event === "session:ended" || body.event === "session:started") {
    void client.invalidateQueries({ queryKey: ["history"] });
  }
  if (kind === "session" && body.payload.session) {
    applySession(client, body, body.payload.session);
    void client.invalidateQueries({ queryKey: ["status", target] });
  }
  if (body.event === "chat:message" && body.payload.message) applyMessage(client, target, body.payload.message);
  if (body.event === "queue:changed" && body.payload.messages) {
    patch(client, ["queue", target], () => body.payload.messages);
  }
  if (body.event === "agent:generating_completed" || body.event === "agent:error") deltas.end(target);
  if (kind === "approval") {
    void client.invalidateQueries({ queryKey: ["status", target] });
    void client.invalidateQueries({ queryKey: ["approvals"] });
  }
}

/**
 * Change what has been read. If it is being read at this moment, the response may be older than the
 * event and would replace it: then it is read once more.
 */
function patch<T>(client: QueryClient, queryKey: readonly unknown[], change: (old: T) => T): void {
  if (client.getQueryState(queryKey)?.fetchStatus === "fetching") void client.invalidateQueries({ queryKey });
  client.setQueryData<T>(queryKey, (old) => (old === undefined ? old : change(old)));
}

function applySession(client: QueryClient, body: EventBody, session: Session): void {
  const ended = body.event === "session:ended";
  patch<Session[]>(client, ["sessions"], (sessions) => withSession(sessions, session, ended));
  applyQuestion(client, session, ended);
  patch<DaemonStatus>(client, ["machine", body.daemonId], (machine) => {
    const others = machine.sessions.filter((one) => one.id !== session.id);
    return { ...machine, sessions: ended ? others : [...others, session] };
  });
  if (ended) {
    void client.invalidateQueries({ queryKey: ["chat", session.targetId] });
    return;
  }
  // The rest of the status (controls, facts) follows with the next response.
  const { status, title, pendingAction, error, workspace } = session;
  patch<object>(client, ["status", session.targetId], (old) => ({
    ...old,
    ...{ status, title, pendingAction, error, workspace },
  }));
}

/** Return the running sessions with this one in its place, or without it if it has ended. */
export function withSession(sessions: readonly Session[], session: Session, ended: boolean): Session[] {
  if (ended) return sessions.filter((one) => one.id !== session.id);
  const known = sessions.some((one) => one.id === session.id);
  return known ? sessions.map((one) => (one.id === session.id ? session : one)) : [session, ...sessions];
}

/** Take an answered question out of the inbox at once; a new one is read with its machine's name. */
function applyQuestion(client: QueryClient, session: Session, ended: boolean): void {
  const question = ended ? undefined : session.pendingAction?.id;
  const open = client.getQueryData<Approval[]>(["approvals"]);
  if (!open) return;
  const rest = open.filter((one) => one.sessionId !== session.id || one.action.id === question);
  if (rest.length < open.length) patch<Approval[]>(client, ["approvals"], () => rest);
  if (question !== undefined && !rest.some((one) => one.action.id === question)) {
    void client.invalidateQueries({ queryKey: ["approvals"] });
  }
}

function applyMessage(client: QueryClient, target: string, message: Message): void {
  deltas.complete(target, message.id);
  if (message.content.endsWith(CUT)) void client.invalidateQueries({ queryKey: ["chat", target] });
  patch<Chat>(client, ["chat", target], (chat) => withMessage(chat, message));
}
