import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useRouterState } from "@tanstack/react-router";
import { CircleDashed, Play, Power } from "lucide-react";
import { lazy, memo, Suspense, useEffect, useMemo, useRef, useState, type RefObject } from "react";
import { api, ApiError, explain, type Control, type EndReason, type Session as Listed } from "@/api/client";
import { keys } from "@/api/query-keys";
import { useFleet } from "./fleet";
import { machineOf } from "@/api/target-id";
import { chatQuery, endedQuery, statusQuery } from "./queries";
import { machineQuery } from "@/features/machines/queries";
import { queryClient } from "@/api/query-client";
import type { Tab } from "./tabs";
import { t, visible } from "@/text";
import { exactTime } from "@/text/format";
import { BackLink } from "@/ui/back-link";
import { Button, buttonClass } from "@/ui/button";
import { cn } from "@/ui/cn";
import { Alert, Empty, Notice, Skeleton } from "@/ui/feedback";
import { Select } from "@/ui/field";
import { Page, useTitle } from "@/ui/page";
import { Status } from "@/ui/status";
import { SessionApproval } from "@/features/inbox/question-card";
import { Chat } from "@/features/sessions/chat/chat";
import { Composer } from "@/features/sessions/chat/composer";
import { useResume } from "./use-resume";

// The chat is no `lazy` component: React shows what has suspended once at the earliest after 300 ms.
const Terminal = lazy(() => import("@/features/terminals/terminal"));
const Changes = lazy(() => import("@/features/sessions/workspace/changes"));
const Files = lazy(() => import("@/features/sessions/workspace/files"));
const Debug = lazy(() => import("./debug"));
const Stop = lazy(() => import("./stop"));

const route = getRouteApi("/shell/sessions/$targetId");

export function SessionPage() {
  const { targetId } = route.useParams();
  return <Session key={targetId} targetId={targetId} />;
}

function Session({ targetId }: { targetId: string }) {
  const { tab = "chat", path = "" } = route.useSearch();
  const daemonId = machineOf(targetId);
  const fleet = useFleet();
  const listed = fleet.places.find((place) => place.session.targetId === targetId)?.session;
  const daemon = fleet.machines.find(({ id }) => id === daemonId);
  const offline = daemon?.connected === false;
  const chat = useQuery(chatQuery(targetId));
  // An ended session has no status: a request for it would be refused.
  const running = listed !== undefined || chat.data?.state === "running";
  const status = useQuery({ ...statusQuery(targetId), enabled: running && !offline });
  const machine = useQuery(machineQuery(daemonId)).data;
  const [stopping, setStopping] = useState(false);
  const [error, setError] = useState<string>();
  const [notice, setNotice] = useState<string>();
  // Until the machine answers, or while it is offline, what the list knows.
  const state = status.data ?? (listed && lastKnown(listed));
  const session = listed ?? machine?.sessions.find((one) => one.id === state?.sessionId);
  const title = visible(state?.title ?? session?.type ?? state?.agentType ?? t("session.one"));
  useTitle(title);
  const tabs = useMemo(() => tabsOf(session?.kind), [session?.kind]);
  const panel = useRef<HTMLDivElement>(null);
  useFocusOnOpening(panel, state !== undefined);

  const missing = [status.error, listed ? null : chat.error].some((error) => error instanceof ApiError && error.status === 404);
  if (missing || (!listed && chat.data?.state === "ended")) return <Ended targetId={targetId} />;
  if (!state) return <Unread title={title} query={running ? status : chat} />;

  const name = session?.name ?? state.agentType;
  const inChat = (text: string) => chat.data?.messages.at(-1)?.content.trim().endsWith(text.trim()) ?? false;
  return (
    <div className="flex h-full flex-col">
      <Header
        title={title}
        status={state.status}
        facts={[name, state.workspace?.path, machine?.nickname]}
        action={
          <Button look="quiet" icon={<Power className="size-4" aria-hidden />} onClick={() => setStopping(true)}>
            {t("session.stop")}
          </Button>
        }
      >
        <div className="flex flex-wrap items-center justify-between gap-x-4 px-2 sm:px-4">
          <Tabs tabs={tabs} current={tab} targetId={targetId} />
          <Controls targetId={targetId} controls={state.controls} onError={setError} phone={tab === "chat"} />
        </div>
      </Header>
      {offline && (
        <p role="alert" className="border-b border-line bg-sunken px-4 py-1.5 text-sm text-soft sm:px-6">
          {t("session.offline", visible(daemon.nickname), exactTime(daemon.lastSeenAt ?? 0))}
        </p>
      )}
      {error && <Alert className="m-3">{error}</Alert>}
      <div role="tabpanel" aria-label={tabs.find((one) => one.id === tab)?.label} className="min-h-20 grow basis-0">
        <Suspense fallback={<Skeleton />}>
          {tab === "terminal" ? (
            <Terminal path={`/api/v1/shortcuts/${encodeURIComponent(targetId)}/terminal`} />
          ) : tab === "changes" ? (
            <Changes targetId={targetId} status={state.status} />
          ) : tab === "files" ? (
            <Files targetId={targetId} path={path} root={state.workspace?.name || t("session.files")} />
          ) : tab === "debug" ? (
            <Debug targetId={targetId} />
          ) : (
            <Chat targetId={targetId} name={name} generating={state.status === "generating"} screen={session?.kind === "cli"} />
          )}
        </Suspense>
      </div>
      {tab === "chat" && (
        <div ref={panel} className="min-h-0 overflow-y-auto px-3 pt-0.5 pb-[max(0.75rem,env(safe-area-inset-bottom))] sm:px-6">
          <div className="mx-auto max-w-3xl space-y-2">
            {state.status === "error" && state.error && <Alert>{inChat(state.error) ? t("session.error") : `${t("session.error")}: ${state.error}`}</Alert>}
            {notice && <Notice neutral text={notice} onEnd={() => setNotice(undefined)} />}
            {state.pendingAction && !offline && (
              <SessionApproval
                key={state.pendingAction.id}
                targetId={targetId}
                action={state.pendingAction}
                name={name}
                onElsewhere={setNotice}
              />
            )}
            <Composer targetId={targetId} status={state.status} name={name} pictures={session?.kind === "acp"} />
          </div>
        </div>
      )}
      <Suspense>
        {stopping && (
          <Stop
            daemonId={daemonId}
            targetId={targetId}
            body={{ type: session?.type ?? state.agentType, sessionId: state.sessionId }}
            worktree={session?.worktree}
            onClose={() => setStopping(false)}
          />
        )}
      </Suspense>
    </div>
  );
}

/** Return what a list knows of a session's status; the settings of its agent are not in lists. */
const lastKnown = ({ id, type, status, title, pendingAction, error, workspace }: Listed) => ({
  ...{ sessionId: id, agentType: type, status, title, pendingAction, error, workspace },
  controls: [] as Control[],
});

/** What a user who has come from another page does first here: answer the question, or write. */
function useFocusOnOpening(panel: RefObject<HTMLElement | null>, ready: boolean): void {
  const cameHere = useRouterState({ select: ({ location }) => (location.state.__TSR_index ?? 0) > 0 });
  const done = useRef(!cameHere);
  useEffect(() => {
    if (!ready || done.current) return;
    done.current = true;
    if (document.activeElement !== document.body && !document.activeElement?.matches("main")) return;
    const question = panel.current?.querySelector<HTMLElement>("[data-row]");
    // On a phone, the focus would bring its keyboard up.
    const box = matchMedia("(pointer: fine)").matches ? panel.current?.querySelector("textarea") : undefined;
    (question ?? box)?.focus({ preventScroll: true });
  }, [panel, ready]);
}

interface UnreadProps {
  title: string;
  query?: { error: Error | null; isFetching: boolean; refetch: () => unknown };
}

/** The page while the session has not been read, or could not be. */
function Unread({ title, query }: UnreadProps) {
  return (
    <Page title={title} back={{ to: "/", label: t("session.back") }}>
      {query?.error ? (
        <div className="p-4">
          <Alert>{explain(query.error)}</Alert>
          <Button className="mt-3" busy={query.isFetching} onClick={() => void query.refetch()}>
            {t("app.retry")}
          </Button>
        </div>
      ) : (
        <Skeleton />
      )}
    </Page>
  );
}

const BACK = <BackLink to="/" label={t("session.back")} className="sm:-ml-2" />;

interface HeaderProps {
  title: string;
  status: string;
  /** What is known of the session, such as its agent, directory and machine. */
  facts: (string | undefined)[];
  action: React.ReactNode;
  children?: React.ReactNode;
}

function Header({ title, status, facts, action, children }: HeaderProps) {
  return (
    <header className="shrink-0 border-b border-line">
      <div className="flex items-center gap-2 px-2 pt-2 sm:px-6">
        {BACK}
        <h1 className="min-w-0 truncate text-base">{title}</h1>
        <div className="ml-auto flex shrink-0 items-center gap-1">{action}</div>
      </div>
      <div className={cn("flex items-center gap-2.5 px-4 sm:px-6", !children && "pb-2")}>
        <Status value={status} />
        <p className="truncate text-xs text-faint">{visible(facts.filter(Boolean).join(" · "))}</p>
      </div>
      {children}
    </header>
  );
}

const ENDS: Record<EndReason, string> = {
  stopped: t("session.ended.stopped"),
  exited: t("session.ended.exited"),
  crashed: t("session.ended.crashed"),
  machine_restarted: t("session.ended.machine_restarted"),
};

/** Return in a sentence why a session ended; a newer service may have other reasons. */
function endSentence(reason: EndReason | null | undefined): string {
  return (reason && ENDS[reason]) ?? t("session.endedSince");
}

/** A session that has ended: its chat stays, and it can be resumed where its agent can do that. */
function Ended({ targetId }: { targetId: string }) {
  const daemonId = machineOf(targetId);
  // What was read while it ran does not say that it has ended.
  const chat = useQuery({ ...chatQuery(targetId), refetchOnMount: "always", retryOnMount: false });
  const machine = useQuery(machineQuery(daemonId)).data;
  const sessionId = chat.data?.sessionId ?? "";
  const ended = useQuery({ ...endedQuery(sessionId), enabled: sessionId !== "" }).data;
  const { busy, error, resume } = useResume();
  const title = visible(chat.data?.title ?? chat.data?.type ?? t("session.one"));
  useTitle(title);

  if (chat.isPending || (chat.isFetching && chat.data?.state !== "ended")) return <Unread title={title} />;
  if (chat.error || chat.data.state !== "ended") {
    const gone = !chat.error || (chat.error instanceof ApiError && chat.error.status === 404);
    return gone ? (
      <Empty heading="h1" icon={<CircleDashed />} title={t("session.gone")} hint={t("session.goneHint")}>
        <Link to="/" className={buttonClass("primary")}>
          {t("app.home")}
        </Link>
      </Empty>
    ) : (
      <Unread title={title} query={chat} />
    );
  }
  const { type, resumable, agentType } = chat.data;
  const name = ended?.name ?? agentType;
  const why = ended?.notResumable ? t("session.notResumable", ended.notResumable) : t("session.notResumableUnknown");
  return (
    <div className="flex h-full flex-col">
      <Header
        title={title}
        status="ended"
        facts={[name, ended?.workspace?.path, machine?.nickname]}
        action={
          resumable && (
            <Button look="primary" busy={busy} icon={<Play className="size-4" aria-hidden />} onClick={() => void resume({ id: sessionId, targetId, type })}>
              {t("session.resume")}
            </Button>
          )
        }
      />
      <div className="min-h-0 grow">
        <Chat targetId={targetId} name={name} generating={false} ended />
      </div>
      <div className="shrink-0 border-t border-line px-4 py-3 pb-[max(0.75rem,env(safe-area-inset-bottom))] sm:px-6">
        <div className="mx-auto max-w-3xl text-sm text-soft">
          {error && <Alert className="mb-2">{error}</Alert>}
          {endSentence(ended?.endReason)} {!resumable && why}
        </div>
      </div>
    </div>
  );
}

interface TabEntry {
  id: Tab;
  label: string;
}

const tabsOf = (kind: string | undefined): TabEntry[] => [
  { id: "chat", label: t("session.chat") },
  ...(kind === "cli" ? [{ id: "terminal" as const, label: t("session.terminal") }] : []),
  { id: "changes", label: t("session.changes") },
  { id: "files", label: t("session.files") },
  { id: "debug", label: t("session.debug") },
];

const Tabs = memo(function Tabs({ tabs, current, targetId }: { tabs: TabEntry[]; current: Tab; targetId: string }) {
  return (
    <div
      role="tablist"
      aria-label={t("session.tabs")}
      className="flex"
      onKeyDown={(event) => {
        const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
        if (step === 0) return;
        const all = [...event.currentTarget.querySelectorAll<HTMLElement>('[role="tab"]')];
        const next = (all.indexOf(document.activeElement as HTMLElement) + step + all.length) % all.length;
        all[next]?.focus();
        // An open terminal takes the focus: the next key would go to the agent. Enter opens it.
        if (tabs[next]?.id !== "terminal") all[next]?.click();
      }}
    >
      {tabs.map(({ id, label }) => (
        <Link
          key={id}
          role="tab"
          aria-selected={id === current}
          tabIndex={id === current ? 0 : -1}
          to="/sessions/$targetId"
          params={{ targetId }}
          search={id === "chat" ? {} : { tab: id }}
          replace
          className={cn(
            "-mb-px border-b-2 px-2.5 py-2 text-sm font-medium",
            id === current ? "border-accent text-text" : "border-transparent text-soft hover:text-text",
          )}
        >
          {label}
        </Link>
      ))}
    </div>
  );
});

interface ControlsProps {
  targetId: string;
  controls: Control[];
  onError: (error: string | undefined) => void;
  /** Whether a phone, too, has room for them. */
  phone: boolean;
}

/** The agent's settings, such as its model and mode. What is shown is what the agent reports. */
const Controls = memo(function Controls({ targetId, controls, onError, phone }: ControlsProps) {
  const [busy, setBusy] = useState<string>();
  async function set(id: string, value: string | boolean) {
    setBusy(id);
    onError(undefined);
    try {
      const body = { controls: { [id]: value } } as never;
      await api.post("/api/v1/shortcuts/{ideId}/chat", { path: { ideId: targetId }, body });
    } catch (failure) {
      onError(explain(failure));
    }
    await queryClient.invalidateQueries({ queryKey: keys.status(targetId) });
    setBusy(undefined);
  }
  if (controls.length === 0) return null;
  return (
    <div
      role="group"
      aria-label={t("session.controls")}
      className={cn(
        "flex max-w-full items-center gap-x-3 overflow-x-auto px-2 py-1 max-sm:w-full max-sm:border-t max-sm:border-line sm:flex-wrap [&>*]:shrink-0",
        !phone && "max-sm:hidden",
      )}
    >
      {controls.map((control) =>
        control.type === "toggle" ? (
          <label key={control.id} className="flex items-center gap-1.5 text-sm text-soft">
            <input
              type="checkbox"
              className="size-4 accent-accent-fill"
              checked={control.value === true}
              disabled={busy !== undefined}
              onChange={(event) => void set(control.id, event.target.checked)}
            />
            {control.label}
          </label>
        ) : control.type !== "select" ? null : ( // of a newer service
          <Select
            key={control.id}
            inline
            label={control.label}
            value={typeof control.value === "string" ? control.value : ""}
            disabled={busy !== undefined}
            onChange={(event) => void set(control.id, event.target.value)}
          >
            {typeof control.value !== "string" && <option value="">?</option>}
            {[...new Set([...(control.options ?? []), ...(typeof control.value === "string" ? [control.value] : [])])].map((option) => (
              <option key={option}>{option}</option>
            ))}
          </Select>
        ),
      )}
    </div>
  );
});
