import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { ArrowLeft, CircleDashed, Power } from "lucide-react";
import { lazy, Suspense, useState } from "react";
import { api, ApiError, explain, type Control } from "@/api/client";
import { machineOf, machineQuery, queryClient, statusQuery } from "@/api/queries";
import type { Tab } from "@/router";
import { t } from "@/text";
import { Button, buttonClass } from "@/ui/button";
import { cn } from "@/ui/cn";
import { Confirm } from "@/ui/dialog";
import { Alert, Empty, Skeleton } from "@/ui/feedback";
import { Select } from "@/ui/field";
import { useTitle } from "@/ui/page";
import { Status } from "@/ui/status";
import { SessionApproval } from "./approval";
import { Chat } from "./chat";
import { Composer } from "./composer";

const Terminal = lazy(() => import("./terminal"));
const Debug = lazy(() => import("./debug"));

const route = getRouteApi("/shell/sessions/$targetId");

export function SessionPage() {
  const { targetId } = route.useParams();
  return <Session key={targetId} targetId={targetId} />;
}

function Session({ targetId }: { targetId: string }) {
  const { tab = "chat" } = route.useSearch();
  const status = useQuery(statusQuery(targetId));
  const daemonId = machineOf(targetId);
  const machine = useQuery(machineQuery(daemonId)).data;
  const session = machine?.sessions.find((one) => one.id === status.data?.sessionId);
  const [stopping, setStopping] = useState(false);
  const [error, setError] = useState<string>();
  const state = status.data;
  const title = state?.title ?? session?.type ?? state?.agentType ?? t("nav.sessions");
  useTitle(title);

  const gone = status.error instanceof ApiError && status.error.status === 404;
  if (!state || gone) {
    if (gone) {
      return (
        <Empty icon={<CircleDashed />} title={t("session.ended")} hint={t("session.endedHint")}>
          <Link to="/" className={buttonClass("primary")}>
            {t("app.home")}
          </Link>
        </Empty>
      );
    }
    return status.error ? (
      <div className="p-4">
        <Alert>{explain(status.error)}</Alert>
        <Button className="mt-3" onClick={() => void status.refetch()}>
          {t("app.retry")}
        </Button>
      </div>
    ) : (
      <Skeleton />
    );
  }

  const name = session?.name ?? state.agentType;
  const tabs: { id: Tab; label: string }[] = [
    { id: "chat", label: t("session.chat") },
    ...(session?.kind === "cli" ? [{ id: "terminal" as const, label: t("session.terminal") }] : []),
    { id: "debug", label: t("session.debug") },
  ];

  return (
    <div className="flex h-full flex-col">
      <header className="shrink-0 border-b border-line">
        <div className="flex items-center gap-2 px-2 pt-2 sm:px-6">
          <Link to="/" aria-label={t("session.back")} className={cn(buttonClass("quiet", true), "md:hidden")}>
            <ArrowLeft className="size-4" aria-hidden />
          </Link>
          <h1 className="min-w-0 truncate text-base">{title}</h1>
          <Status value={state.status} />
          <div className="ml-auto flex shrink-0 items-center gap-1">
            <Button look="quiet" icon={<Power className="size-4" aria-hidden />} onClick={() => setStopping(true)}>
              {t("session.stop")}
            </Button>
          </div>
        </div>
        <p className="truncate px-4 text-xs text-faint sm:px-6">
          {[name, state.workspace?.path, machine?.nickname].filter(Boolean).join(" · ")}
        </p>
        <div className="flex flex-wrap items-center justify-between gap-x-4 px-2 sm:px-4">
          <Tabs tabs={tabs} current={tab} targetId={targetId} />
          <Controls targetId={targetId} controls={state.controls} onError={setError} />
        </div>
      </header>
      {machine && !machine.connected && <p className="border-b border-line bg-sunken px-4 py-1.5 text-sm text-soft sm:px-6">{t("session.offline")}</p>}
      {error && <Alert className="m-3">{error}</Alert>}
      <div role="tabpanel" aria-label={tabs.find((one) => one.id === tab)?.label} className="min-h-0 grow">
        <Suspense fallback={<Skeleton />}>
          {tab === "terminal" ? (
            <Terminal path={`/api/v1/shortcuts/${encodeURIComponent(targetId)}/terminal`} />
          ) : tab === "debug" ? (
            <Debug targetId={targetId} />
          ) : (
            <Chat targetId={targetId} name={name} generating={state.status === "generating"} />
          )}
        </Suspense>
      </div>
      {tab === "chat" && (
        <div className="shrink-0 px-3 pb-[max(0.75rem,env(safe-area-inset-bottom))] sm:px-6">
          <div className="mx-auto max-w-3xl space-y-2">
            {state.status === "error" && state.error && <Alert>{`${t("session.error")}: ${state.error}`}</Alert>}
            {state.pendingAction && (
              <SessionApproval key={state.pendingAction.id} targetId={targetId} action={state.pendingAction} name={name} />
            )}
            <Composer targetId={targetId} status={state.status} name={name} />
          </div>
        </div>
      )}
      <Confirm
        open={stopping}
        onOpenChange={setStopping}
        title={t("session.stopTitle")}
        why={t("session.stopWhy")}
        action={t("session.stop")}
        onConfirm={async () => {
          await api.post("/api/v1/shortcuts/{daemonId}/stop", {
            path: { daemonId },
            body: { type: session?.type ?? state.agentType, sessionId: state.sessionId },
          });
          await Promise.all([
            queryClient.invalidateQueries({ queryKey: ["machine", daemonId] }),
            queryClient.invalidateQueries({ queryKey: ["status", targetId] }),
          ]);
        }}
      />
    </div>
  );
}

function Tabs({ tabs, current, targetId }: { tabs: { id: Tab; label: string }[]; current: Tab; targetId: string }) {
  return (
    <div
      role="tablist"
      aria-label={t("session.tabs")}
      className="flex"
      onKeyDown={(event) => {
        const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
        if (step === 0) return;
        const all = [...event.currentTarget.querySelectorAll<HTMLElement>('[role="tab"]')];
        const next = all[(all.indexOf(document.activeElement as HTMLElement) + step + all.length) % all.length];
        next?.focus();
        next?.click();
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
}

interface ControlsProps {
  targetId: string;
  controls: Control[];
  onError: (error: string | undefined) => void;
}

/** The agent's settings, such as its model and mode. What is shown is what the agent reports. */
function Controls({ targetId, controls, onError }: ControlsProps) {
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
    await queryClient.invalidateQueries({ queryKey: ["status", targetId] });
    setBusy(undefined);
  }
  if (controls.length === 0) return null;
  return (
    <div
      role="group"
      aria-label={t("session.controls")}
      className="flex max-w-full items-center gap-x-3 overflow-x-auto px-2 py-1 max-sm:w-full max-sm:border-t max-sm:border-line sm:flex-wrap [&>*]:shrink-0"
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
        ) : (
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
}
