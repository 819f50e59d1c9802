import { useQueries, useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { MonitorSmartphone, Plus } from "lucide-react";
import { lazy, Suspense, useState } from "react";
import { explain, type Daemon, type DaemonStatus } from "@/api/client";
import { t, visible } from "@/text";
import { bytes } from "@/text/format";
import { Button } from "@/ui/button";
import { readDraft } from "@/ui/drafts";
import { Alert, Empty, Skeleton } from "@/ui/feedback";
import { SearchBox } from "@/ui/field";
import { Page } from "@/ui/page";
import { RowLink } from "@/ui/row-link";
import { Status } from "@/ui/status";
import { Age } from "@/ui/time";
import { useFilterText } from "@/ui/use-filter-text";
import { Load } from "./load";
import { machineState } from "./machine-state";
import { machineQuery, machinesQuery } from "./queries";

const route = getRouteApi("/shell/machines");
const Connect = lazy(() => import("@/features/connect/connect"));

/** Of how many machines the figures are read, each with a request of its own: a login may make 600 a minute. */
const MOST_FIGURES = 50;
const REFRESH_MS = 15_000;
/** With many machines their figures are read less often: at most 100 requests a minute. */
const REFRESH_EACH_MS = 600;

export function MachinesPage() {
  // A lost connection is no event until the machine counts as offline.
  const machines = useQuery({ ...machinesQuery, refetchInterval: 5000 });
  const list = machines.data ?? [];
  const [connecting, setConnecting] = useState(() => readDraft("connect") !== "");
  const { q } = route.useSearch();
  const navigate = route.useNavigate();
  const [text, setText] = useFilterText(q, (next) => navigate({ search: next ? { q: next } : {}, replace: true }));
  const connect = (
    <Button look="primary" icon={<Plus className="size-4" aria-hidden />} onClick={() => setConnecting(true)}>
      {t("machines.connect")}
    </Button>
  );
  const shown = list.filter((machine) =>
    `${machine.nickname}\n${machine.hostname}`.toLowerCase().includes(text.toLowerCase()),
  );
  const first = shown.slice(0, MOST_FIGURES);
  const refetchInterval = Math.max(REFRESH_MS, first.length * REFRESH_EACH_MS);
  const details = useQueries({ queries: first.map((machine) => ({ ...machineQuery(machine.id), refetchInterval })) });
  return (
    <Page title={t("machines.title")} actions={list.length > 0 && connect}>
      {machines.error && <Alert className="m-4">{explain(machines.error)}</Alert>}
      {machines.isPending ? (
        <Skeleton />
      ) : list.length === 0 ? (
        !machines.error && (
          <Empty icon={<MonitorSmartphone />} title={t("machines.none")} hint={t("machines.noneHint")}>
            {connect}
          </Empty>
        )
      ) : (
        <>
          {(list.length > 5 || text !== "") && (
            <div className="border-b border-line px-4 py-2 sm:px-6">
              <SearchBox label={t("machines.filter")} value={text} onChange={setText} />
            </div>
          )}
          <ul aria-label={t("machines.list")}>
            {shown.map((machine, i) => (
              <MachineRow key={machine.id} machine={{ ...details[i]?.data, ...machine }} />
            ))}
          </ul>
          {shown.length > MOST_FIGURES && (
            <p className="px-4 py-2.5 text-sm text-faint sm:px-6">{t("machines.figures", MOST_FIGURES)}</p>
          )}
        </>
      )}
      <Suspense>{connecting && <Connect onClose={() => setConnecting(false)} />}</Suspense>
    </Page>
  );
}

function MachineRow({ machine }: { machine: Daemon | DaemonStatus }) {
  const full = "sessions" in machine && machine.sessions ? machine : undefined;
  const online = machine.connected !== false;
  const system = online ? full?.machine : undefined; // the figures of an offline one are of the past
  return (
    <li className="relative flex items-center gap-3 border-b border-line px-4 py-2.5 hover:bg-hover has-focus-visible:bg-hover sm:px-6">
      <Status value={machineState(machine)} className="max-sm:order-last sm:w-28" />
      <div className="min-w-0 grow">
        <RowLink to="/machines/$daemonId" params={{ daemonId: machine.id }} className="block font-medium">
          {visible(machine.nickname)}
        </RowLink>
        <p className="truncate text-sm text-faint">
          {[
            machine.hostname !== machine.nickname && visible(machine.hostname),
            machine.platform,
            online && full && t("machines.sessions", full.sessions.length),
            machine.version,
          ]
            .filter(Boolean)
            .join(" · ")}
        </p>
        {system && (
          <p className="text-sm text-faint tabular-nums lg:hidden">
            {t("machines.load")} <Load system={system} />
          </p>
        )}
      </div>
      {system ? (
        <dl className="hidden shrink-0 gap-6 text-right text-sm tabular-nums lg:flex">
          <Figure label={t("machines.load")}>
            <Load system={system} />
          </Figure>
          <Figure label={t("machines.memory")}>
            {t("machines.memoryUse", bytes(system.totalMem - system.freeMem), bytes(system.totalMem))}
          </Figure>
        </dl>
      ) : (
        !online &&
        machine.lastSeenAt !== null && (
          <dl className="shrink-0 text-right text-sm tabular-nums">
            <Figure label={t("machines.lastSeen")}>
              <Age at={machine.lastSeenAt} />
            </Figure>
          </dl>
        )
      )}
    </li>
  );
}

const Figure = ({ label, children }: { label: string; children: React.ReactNode }) => (
  <div>
    <dt className="text-xs text-faint">{label}</dt>
    <dd className="text-soft">{children}</dd>
  </div>
);
