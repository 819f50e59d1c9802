import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { Check, CircleDashed, Minus, Plus } from "lucide-react";
import { lazy, Suspense, useState } from "react";
import { api, ApiError, explain, type Provider } from "@/api/client";
import { keys } from "@/api/query-keys";
import { refresh } from "@/api/use-action";
import { bySessionUrgency, type Place } from "@/features/sessions/places";
import { SessionRow } from "@/features/sessions/session-row";
import { Terminals } from "@/features/terminals/terminals";
import { t, visible } from "@/text";
import { bytes, duration, exactTime } from "@/text/format";
import { Button, buttonClass } from "@/ui/button";
import { Confirm } from "@/ui/dialog";
import { Alert, Empty, Skeleton } from "@/ui/feedback";
import { Page } from "@/ui/page";
import { Status } from "@/ui/status";
import { Load } from "./load";
import { machineState } from "./machine-state";
import { machineQuery, machinesQuery } from "./queries";

const Launch = lazy(() => import("@/features/sessions/launch"));
const route = getRouteApi("/shell/machines/$daemonId");

const BACK = { to: "/machines", label: t("machines.title") } as const;

export function MachinePage() {
  const { daemonId } = route.useParams();
  const machine = useQuery({ ...machineQuery(daemonId), refetchInterval: 15_000 });
  const listed = useQuery({ ...machinesQuery, refetchInterval: 5000 }).data?.find(({ id }) => id === daemonId);
  const navigate = useNavigate();
  const [ask, setAsk] = useState<"disconnect" | "revoke">();
  const [launching, setLaunching] = useState(false);
  const data = machine.data;

  if (!data) {
    if (machine.error instanceof ApiError && machine.error.status === 404) {
      return (
        <Empty heading="h1" icon={<CircleDashed />} title={t("machines.gone")}>
          <Link to="/machines" className={buttonClass("primary")}>
            {t("machines.title")}
          </Link>
        </Empty>
      );
    }
    return (
      <Page title={visible(listed?.nickname ?? t("machines.one"))} back={BACK}>
        {machine.error ? <Alert className="m-4">{explain(machine.error)}</Alert> : <Skeleton />}
      </Page>
    );
  }

  const places = data.sessions.map((session): Place => ({ session, machine: data })).sort(bySessionUrgency);
  const system = data.machine;
  const providers = [...data.availableProviders].sort((a, b) => a.displayName.localeCompare(b.displayName));
  const missing = providers.filter((provider) => !provider.installed);
  const changes = [keys.machines(), keys.machine(daemonId)];

  return (
    <Page
      title={visible(data.nickname)}
      back={BACK}
      actions={
        <>
          {data.connected && (
            <Button look="quiet" onClick={() => setAsk("disconnect")}>
              {t("machines.disconnect")}
            </Button>
          )}
          <Button look="danger" onClick={() => setAsk("revoke")}>
            {t("machines.revoke")}
          </Button>
        </>
      }
    >
      <div className="flex items-center gap-3 border-b border-line px-4 py-3 sm:px-6">
        <Status value={machineState({ connected: data.connected, reconnecting: listed?.reconnecting })} />
        <span className="truncate text-sm text-soft">{visible(data.hostname)}</span>
      </div>
      {system && (
        <dl className="grid grid-cols-2 gap-x-6 gap-y-3 border-b border-line px-4 py-4 text-sm sm:grid-cols-3 sm:px-6 lg:grid-cols-[repeat(6,auto)]">
          {data.connected && (
            <>
              <Fact label={t("machines.load")} hint={system.loadavg.map((load) => load.toFixed(2)).join(", ")}>
                <Load system={system} />
              </Fact>
              <Fact label={t("machines.memory")}>
                {t("machines.memoryUse", bytes(system.totalMem - system.freeMem), bytes(system.totalMem))}
              </Fact>
              <Fact label={t("machines.uptime")}>{duration(system.uptime)}</Fact>
            </>
          )}
          <Fact label={t("machines.system")} hint={system.release}>
            {`${system.platform} ${system.arch}, ${t("machines.processors", system.cpus)}`}
          </Fact>
          <Fact label={data.connected ? t("machines.connectedSince") : t("machines.lastSeen")}>
            {exactTime((data.connected ? data.connectedAt : data.lastSeenAt) ?? 0)}
          </Fact>
          <Fact label={t("machines.version")}>{data.version}</Fact>
        </dl>
      )}
      {data.connected && (
        <Section title={t("machines.terminals")}>
          <Terminals daemonId={daemonId} />
        </Section>
      )}
      <Section
        title={t("sessions.title")}
        action={
          data.connected && (
            <Button icon={<Plus className="size-4" aria-hidden />} onClick={() => setLaunching(true)}>
              {t("machines.launchHere")}
            </Button>
          )
        }
      >
        {places.length > 0 ? (
          <ul aria-label={t("sessions.list")} className="border-t border-line">
            {places.map((place) => (
              <SessionRow key={place.session.id} place={place} here />
            ))}
          </ul>
        ) : (
          <p className="px-4 pb-3 text-sm text-soft sm:px-6">{t("machines.noSessions")}</p>
        )}
      </Section>
      <Section title={t("machines.agents")}>
        <Providers providers={providers.filter((provider) => provider.installed)} />
        {missing.length > 0 && (
          <details className="px-4 pb-6 text-sm sm:px-6">
            <summary className="mb-2 w-fit rounded-sm py-1 text-soft hover:text-text">
              {t("machines.missing", missing.length)}
            </summary>
            <div className="-mx-4 sm:-mx-6">
              <Providers providers={missing} />
            </div>
          </details>
        )}
      </Section>
      <Confirm
        open={ask === "disconnect"}
        onOpenChange={(open) => setAsk(open ? "disconnect" : undefined)}
        title={t("machines.disconnectTitle")}
        why={t("machines.disconnectWhy")}
        action={t("machines.disconnect")}
        onConfirm={() => api.post("/api/v1/daemons/{daemonId}/disconnect", { path: { daemonId } })}
        changes={changes}
      />
      <Confirm
        open={ask === "revoke"}
        onOpenChange={(open) => setAsk(open ? "revoke" : undefined)}
        title={t("machines.revokeTitle")}
        why={t("machines.revokeWhy")}
        action={t("machines.revoke")}
        onConfirm={async () => {
          await api.post("/api/v1/daemons/{daemonId}/revoke", { path: { daemonId } });
          await refresh(...changes);
          await navigate({ to: "/machines" });
        }}
      />
      <Suspense>{launching && <Launch daemonId={daemonId} onClose={() => setLaunching(false)} />}</Suspense>
    </Page>
  );
}

interface SectionProps {
  title: string;
  action?: React.ReactNode;
  children: React.ReactNode;
}

function Section({ title, action, children }: SectionProps) {
  return (
    <section aria-label={title}>
      <div className="flex min-h-12 items-center justify-between px-4 sm:px-6">
        <h2 className="text-sm">{title}</h2>
        {action}
      </div>
      {children}
    </section>
  );
}

const Providers = ({ providers }: { providers: Provider[] }) => (
  <ul className="grid gap-x-6 px-4 pb-3 sm:grid-cols-2 sm:px-6 lg:grid-cols-3">
    {providers.map((provider) => (
      <li key={provider.type} className="flex h-8 items-center gap-2 text-sm">
        {provider.installed ? (
          <Check className="size-4 shrink-0 text-good" aria-hidden />
        ) : (
          <Minus className="size-4 shrink-0 text-faint" aria-hidden />
        )}
        <span className={provider.installed ? "" : "text-faint"}>{provider.displayName}</span>
        <span className="ml-auto truncate text-xs text-faint" title={provider.path ?? undefined}>
          {provider.error ?? (provider.installed ? t("machines.installed") : t("machines.notInstalled"))}
        </span>
      </li>
    ))}
  </ul>
);

const Fact = ({ label, hint, children }: { label: string; hint?: string; children: React.ReactNode }) => (
  <div className="min-w-0">
    <dt className="text-xs text-faint">{label}</dt>
    <dd className="wrap-anywhere tabular-nums" title={hint}>
      {children}
    </dd>
  </div>
);
