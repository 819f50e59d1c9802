/** Applies events of the stream to what has been read, so that everything shown stays live. */
import { notifyManager, type QueryClient, type QueryKey } from "@tanstack/react-query";
import type { Frame } from "outrider-client/stream";
import type { Approval, DaemonStatus, Message, PendingAction, Session } from "@/api/client";
import { keys } from "@/api/query-keys";
import { deltas } from "./deltas";
import { withMessage, type Chat } from "./messages";

/** An event; those of a newer service may have other payloads. */
interface EventBody {
  daemonId: string;
  targetId?: string;
  payload?: {
    session?: Session;
    message?: Message;
    messages?: unknown[];
    action?: PendingAction;
  };
}

/** How soon after events of a session its whole status is read; many events in that time are one request. */
export const REREAD_MS = 150;

/** The end of a message that an event has only the beginning of. */
const CUT = "[outrider: the rest is left out here; the chat has it]";

/** Apply an event. What it changes is drawn in one go, not once for each query that it is part of. */
export function applyFrame(client: QueryClient, frame: Frame): void {
  notifyManager.batch(() => apply(client, frame));
}

function apply(client: QueryClient, frame: Frame): void {
  if (frame.event === "stream:ready") {
    const { resume } = JSON.parse(frame.data) as { resume: string };
    // After `ok` the events follow; otherwise something may have been missed.
    if (resume !== "ok") {
      deltas.clear();
      rereadAll(client);
    }
    return;
  }
  if (frame.event === "chat:delta") {
    const delta = JSON.parse(frame.data) as Parameters<typeof deltas.take>[0];
    if (!deltas.take(delta)) reread(client, keys.chat(delta.targetId));
    return;
  }
  if (frame.event.startsWith("stream:")) return;
  const body = JSON.parse(frame.data) as EventBody;
  const [kind] = frame.event.split(":");
  if (kind === "machine") {
    reread(client, keys.machines());
    reread(client, keys.machine(body.daemonId));
    // Questions of a machine that is offline cannot be answered; its sessions may have ended meanwhile.
    reread(client, keys.sessions());
    reread(client, keys.questions());
    return;
  }
  const target = body.targetId;
  const payload = body.payload ?? {};
  if (target === undefined) return;
  if (frame.event === "session:ended" || frame.event === "session:started") {
    reread(client, keys.history());
  }
  if (kind === "session" && payload.session) {
    const ended = frame.event === "session:ended";
    applySession(client, body.daemonId, payload.session, ended);
    if (!ended) rereadStatus(client, target); // an ended session has no status
  }
  if (frame.event === "chat:message" && payload.message) applyMessage(client, target, payload.message);
  if (frame.event === "queue:changed" && payload.messages) patch(client, keys.queue(target), () => payload.messages);
  if (frame.event === "agent:generating_completed" || frame.event === "agent:error") deltas.end(target);
  if (kind === "approval") {
    rereadStatus(client, target);
    reread(client, keys.questions());
  }
}

/**
 * Change what has been read. If it is out of date it stays so, and is read again. If it is being
 * read at this moment, the response may be older than the event and would replace it: then it is
 * read once more.
 */
function patch<T>(client: QueryClient, queryKey: QueryKey, change: (old: T) => T): void {
  const state = client.getQueryState(queryKey);
  client.setQueryData<T>(queryKey, (old) => (old === undefined ? old : change(old)));
  const reading = state !== undefined && state.fetchStatus !== "idle";
  // Setting data makes a query count as up to date.
  if (reading || (state?.isInvalidated && state.data !== undefined)) reread(client, queryKey);
}

/** The reads that another one follows. */
const followed = new WeakSet<Promise<unknown>>();

/**
 * Read again what has been read. A read under way is begun anew, unless it is the first one or
 * nothing on the page waits for it. Such a read goes on, so that many events cannot keep it from
 * ever ending; it is followed by one more, because its response may be older than the event.
 */
function reread(client: QueryClient, queryKey: QueryKey): void {
  for (const query of client.getQueryCache().findAll({ queryKey })) {
    const read = query.state.data === undefined || !query.isActive() ? query.promise : undefined;
    if (read === undefined || followed.has(read)) continue;
    followed.add(read);
    const again = () => client.invalidateQueries({ queryKey: query.queryKey, exact: true });
    read.then(again, () => undefined); // after a failure it is out of date anyway
  }
  void client.invalidateQueries({ queryKey });
}

let rereadingAll = false;

/** At the page's start, reading all again at once would delay what is shown first. */
const REREAD_ALL_MS = 150;

function rereadAll(client: QueryClient): void {
  if (rereadingAll) return;
  rereadingAll = true;
  setTimeout(() => {
    rereadingAll = false;
    reread(client, []);
  }, REREAD_ALL_MS);
}

const rereads = new Map<string, ReturnType<typeof setTimeout>>();

/** Read a session's status, with what its events do not have, such as the controls. */
function rereadStatus(client: QueryClient, target: string): void {
  if (rereads.has(target)) return;
  const read = () => {
    rereads.delete(target);
    reread(client, keys.status(target));
  };
  rereads.set(target, setTimeout(read, REREAD_MS));
}

function applySession(client: QueryClient, daemonId: string, session: Session, ended: boolean): void {
  patch<Session[]>(client, keys.sessions(), (sessions) => withSession(sessions, session, ended));
  applyQuestion(client, session, ended);
  patch<DaemonStatus>(client, keys.machine(daemonId), (machine) => {
    const others = machine.sessions.filter((other) => other.id !== session.id);
    return { ...machine, sessions: ended ? others : [...others, session] };
  });
  if (ended) {
    patch<object>(client, keys.chat(session.targetId), (chat) => ({ ...chat, state: "ended" }));
    reread(client, keys.chat(session.targetId));
    return;
  }
  // The rest of the status (controls, facts) follows with the next response.
  const { status, title, pendingAction, error, workspace } = session;
  patch<object>(client, keys.status(session.targetId), (old) => ({
    ...old,
    ...{ status, title, pendingAction, error, workspace },
  }));
}

/** Return the running sessions with this one in its place, or without it if it has ended. */
export function withSession(sessions: readonly Session[], session: Session, ended: boolean): Session[] {
  if (ended) return sessions.filter((other) => other.id !== session.id);
  const listed = sessions.some((other) => other.id === session.id);
  return listed ? sessions.map((other) => (other.id === session.id ? session : other)) : [session, ...sessions];
}

/** Take an answered question out of the inbox at once; a new one is read with its machine's name. */
function applyQuestion(client: QueryClient, session: Session, ended: boolean): void {
  const question = ended ? undefined : session.pendingAction?.id;
  const open = client.getQueryData<Approval[]>(keys.questions());
  const stays = (other: Approval) => other.sessionId !== session.id || other.action.id === question;
  if (!open?.every(stays)) patch<Approval[]>(client, keys.questions(), (approvals) => approvals.filter(stays));
  if (open && question !== undefined && !open.some((other) => other.action.id === question)) {
    reread(client, keys.questions());
  }
}

function applyMessage(client: QueryClient, target: string, message: Message): void {
  deltas.complete(target, message.id);
  patch<Chat>(client, keys.chat(target), (chat) => withMessage(chat, message));
  if (message.content.endsWith(CUT)) reread(client, keys.chat(target));
}
