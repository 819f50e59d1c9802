import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { Check, CircleDashed, Minus, Plus } from "lucide-react";
import { lazy, Suspense, useState } from "react";
import { api, ApiError, explain } from "@/api/client";
import { bySessionUrgency, type Place } from "@/api/places";
import { machineQuery, machinesQuery, queryClient } from "@/api/queries";
import { t, visible } from "@/text";
import { bytes, duration, exactTime } from "@/text/format";
import { Button, buttonClass } from "@/ui/button";
import { Confirm } from "@/ui/dialog";
import { Alert, Empty, Skeleton } from "@/ui/feedback";
import { Page } from "@/ui/page";
import { Status } from "@/ui/status";
import { machineState } from "./machines";
import { SessionRow } from "./sessions";
import { Terminals } from "./terminals";

const Launch = lazy(() => import("./launch"));
const route = getRouteApi("/shell/machines/$daemonId");

export function MachinePage() {
  const { daemonId } = route.useParams();
  const machine = useQuery({ ...machineQuery(daemonId), refetchInterval: 15_000 });
  const known = useQuery({ ...machinesQuery, refetchInterval: 5000 }).data?.find((one) => one.id === daemonId);
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
      <Page title={visible(known?.nickname ?? t("machines.one"))}>
        {machine.error ? <Alert className="m-4">{explain(machine.error)}</Alert> : <Skeleton />}
      </Page>
    );
  }

  const places = data.sessions.map((session): Place => ({ session, machine: data })).sort(bySessionUrgency);
  const system = data.machine;
  const providers = [...data.availableProviders].sort(
    (one, other) => Number(other.installed) - Number(one.installed) || one.displayName.localeCompare(other.displayName),
  );
  const refresh = () =>
    Promise.all([
      queryClient.invalidateQueries({ queryKey: ["machines"] }),
      queryClient.invalidateQueries({ queryKey: ["machine", daemonId] }),
    ]);

  return (
    <Page
      title={visible(data.nickname)}
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
        <Status value={machineState({ connected: data.connected, reconnecting: known?.reconnecting })} />
        <span className="truncate text-sm text-soft">{visible(data.hostname)}</span>
      </div>
      {system && (
        <dl className="grid grid-cols-2 gap-x-6 gap-y-3 border-b border-line px-4 py-4 text-sm sm:grid-cols-3 sm:px-6 lg:grid-cols-[repeat(6,auto)]">
          <Fact label={t("machines.load")} value={system.loadavg.map((load) => load.toFixed(2)).join("  ")} />
          <Fact
            label={t("machines.memory")}
            value={t("machines.memoryUse", bytes(system.totalMem - system.freeMem), bytes(system.totalMem))}
          />
          <Fact label={t("machines.system")} value={`${system.platform} ${system.arch}`} hint={system.release} />
          <Fact label={t("machines.uptime")} value={duration(system.uptime)} hint={t("machines.processors", system.cpus)} />
          <Fact
            label={data.connected ? t("machines.connectedSince") : t("machines.lastSeen")}
            value={exactTime((data.connected ? data.connectedAt : data.lastSeenAt) ?? 0)}
          />
          <Fact label={t("machines.version")} value={data.version} />
        </dl>
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
              <SessionRow key={place.session.id} place={place} />
            ))}
          </ul>
        ) : (
          <p className="px-4 pb-3 text-sm text-soft sm:px-6">{t("machines.noSessions")}</p>
        )}
      </Section>
      {data.connected && (
        <Section title={t("machines.terminals")}>
          <Terminals daemonId={daemonId} />
        </Section>
      )}
      <Section title={t("machines.agents")}>
        <ul className="grid gap-x-6 px-4 pb-6 sm:grid-cols-2 sm:px-6 lg:grid-cols-3">
          {providers.map((provider) => (
            <li key={provider.type} className="flex h-8 items-center gap-2 text-sm">
              {provider.installed ? (
                <Check className="size-4 text-good" aria-hidden />
              ) : (
                <Minus className="size-4 text-faint" aria-hidden />
              )}
              <span className={provider.installed ? "" : "text-faint"}>{provider.displayName}</span>
              <span className="ml-auto truncate text-xs text-faint" title={provider.path ?? undefined}>
                {provider.error ?? (provider.installed ? t("machines.installed") : t("machines.notInstalled"))}
              </span>
            </li>
          ))}
        </ul>
      </Section>
      <Confirm
        open={ask === "disconnect"}
        onOpenChange={(open) => setAsk(open ? "disconnect" : undefined)}
        title={t("machines.disconnectTitle")}
        why={t("machines.disconnectWhy")}
        action={t("machines.disconnect")}
        onConfirm={async () => {
          await api.post("/api/v1/daemons/{daemonId}/disconnect", { path: { daemonId } });
          await refresh();
        }}
      />
      <Confirm
        open={ask === "revoke"}
        onOpenChange={(open) => setAsk(open ? "revoke" : undefined)}
        title={t("machines.revokeTitle")}
        why={t("machines.revokeWhy")}
        action={t("machines.revoke")}
        onConfirm={async () => {
          await api.post("/api/v1/daemons/{daemonId}/revoke", { path: { daemonId } });
          await refresh();
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

const Fact = ({ label, value, hint }: { label: string; value: string; hint?: string }) => (
  <div className="min-w-0">
    <dt className="text-xs text-faint">{label}</dt>
    <dd className="wrap-anywhere tabular-nums" title={hint}>
      {value}
    </dd>
  </div>
);
