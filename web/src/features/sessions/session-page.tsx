import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useRouterState } from "@tanstack/react-router";
import { Power } from "lucide-react";
import { lazy, Suspense, useEffect, useMemo, useRef, useState, type RefObject } from "react";
import { ApiError, type Control, type Session as Listed } from "@/api/client";
import { machineOf } from "@/api/target-id";
import { SessionQuestion } from "@/features/inbox/question-card";
import { machineQuery } from "@/features/machines/queries";
import { Chat } from "@/features/sessions/chat/chat";
import { Composer } from "@/features/sessions/chat/composer";
import { t, visible } from "@/text";
import { exactTime } from "@/text/format";
import { Button } from "@/ui/button";
import { Alert, Notice, Skeleton } from "@/ui/feedback";
import { useTitle } from "@/ui/page";
import { Controls, useControls } from "./controls";
import { EndedSession } from "./ended-session";
import { useFleet } from "./fleet";
import { chatQuery, statusQuery } from "./queries";
import { Header, Unread } from "./session-frame";
import { Tabs, tabsOf } from "./tabs";

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
  const { tab = "chat", path = "", base = "", file } = route.useSearch();
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
  const settings = useControls(targetId);
  const [notice, setNotice] = useState<string>();
  // Until the machine answers, or while it is offline, what the list knows.
  const state = status.data ?? (listed && lastKnown(listed));
  const session = listed ?? machine?.sessions.find(({ id }) => id === state?.sessionId);
  const title = visible(state?.title ?? session?.type ?? state?.agentType ?? t("session.one"));
  useTitle(title);
  const tabs = useMemo(() => tabsOf(session?.kind), [session?.kind]);
  const panel = useRef<HTMLDivElement>(null);
  useFocusOnOpening(panel, state !== undefined);

  const missing = [status.error, listed ? null : chat.error].some(
    (error) => error instanceof ApiError && error.status === 404,
  );
  if (missing || (!listed && chat.data?.state === "ended")) return <EndedSession targetId={targetId} />;
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
          <Controls controls={state.controls} set={settings.run} busy={settings.busy} phone={tab === "chat"} />
        </div>
      </Header>
      {offline && (
        <p role="alert" className="border-b border-line bg-sunken px-4 py-1.5 text-sm text-soft sm:px-6">
          {t("session.offline", visible(daemon.nickname), exactTime(daemon.lastSeenAt ?? 0))}
        </p>
      )}
      {settings.error && <Alert className="m-3">{settings.error}</Alert>}
      <div role="tabpanel" aria-label={tabs.find(({ id }) => id === tab)?.label} className="min-h-20 grow basis-0">
        <Suspense fallback={<Skeleton />}>
          {tab === "terminal" ? (
            <Terminal path={`/api/v1/shortcuts/${encodeURIComponent(targetId)}/terminal`} />
          ) : tab === "changes" ? (
            <Changes targetId={targetId} status={state.status} base={base} file={file} />
          ) : tab === "files" ? (
            <Files targetId={targetId} path={path} root={state.workspace?.name || t("session.files")} />
          ) : tab === "debug" ? (
            <Debug targetId={targetId} />
          ) : (
            <Chat
              targetId={targetId}
              name={name}
              generating={state.status === "generating"}
              screen={session?.kind === "cli"}
            />
          )}
        </Suspense>
      </div>
      {tab === "chat" && (
        <div
          ref={panel}
          className="min-h-0 overflow-y-auto px-3 pt-0.5 pb-[max(0.75rem,env(safe-area-inset-bottom))] sm:px-6"
        >
          <div className="mx-auto max-w-3xl space-y-2">
            {state.status === "error" && state.error && (
              <Alert>{inChat(state.error) ? t("session.error") : `${t("session.error")}: ${state.error}`}</Alert>
            )}
            {notice && <Notice neutral text={notice} onEnd={() => setNotice(undefined)} />}
            {state.pendingAction && !offline && (
              <SessionQuestion
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
