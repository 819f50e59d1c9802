import { getRouteApi, Link } from "@tanstack/react-router";
import { ListTree, MonitorSmartphone, Plus, SearchX } from "lucide-react";
import { lazy, Suspense, useEffect, useState } from "react";
import { explain, type SessionStatus } from "@/api/client";
import { t, visible } from "@/text";
import { Button, buttonClass } from "@/ui/button";
import { Alert, Empty, Skeleton } from "@/ui/feedback";
import { SearchBox, Select } from "@/ui/field";
import { Page } from "@/ui/page";
import { useFilterText } from "@/ui/use-filter-text";
import { useFleet } from "./fleet";
import { loadCode } from "./load";
import { matches } from "./places";
import { SessionRow } from "./session-row";

const route = getRouteApi("/shell/");
const Launch = lazy(() => import("./launch"));
const STATUSES = ["waiting_approval", "generating", "error", "idle"] as const satisfies readonly SessionStatus[];
// A status that is missing above is an error of tsc here.
({}) satisfies Record<Exclude<SessionStatus, (typeof STATUSES)[number]>, never>;

type Filters = { q?: string; status?: string; machine?: string };

export function SessionsPage() {
  const { places, machines, isPending, error } = useFleet();
  const { q, status = "", machine: machineId = "" } = route.useSearch();
  const navigate = route.useNavigate();
  const filter = (name: keyof Filters, value: string) =>
    navigate({
      search: (search: Filters) => {
        const { [name]: _, ...others } = search;
        return value ? { ...others, [name]: value } : others;
      },
      replace: true,
    });
  const [text, setText] = useFilterText(q, (next) => filter("q", next));
  const [launching, setLaunching] = useState(false);
  useEffect(() => {
    // Most often a session is opened next.
    const timer = setTimeout(loadCode, 1000);
    return () => clearTimeout(timer);
  }, []);
  const shown = places.filter(
    (place) =>
      (!status || place.session.status === status) &&
      (!machineId || place.machine.id === machineId) &&
      matches(place, text),
  );
  const clear = () => {
    setText("");
    void navigate({ search: {}, replace: true });
  };
  const launch = machines.length > 0 && (
    <Button look="primary" icon={<Plus className="size-4" aria-hidden />} onClick={() => setLaunching(true)}>
      {t("launch.open")}
    </Button>
  );
  return (
    <Page title={t("sessions.title")} actions={launch}>
      {places.length > 0 && (
        <div className="sticky top-0 z-10 flex flex-wrap items-center gap-x-4 gap-y-2 border-b border-line bg-ground px-4 py-2 sm:px-6">
          <SearchBox
            label={t("sessions.filter")}
            placeholder={t("sessions.filterHint")}
            value={text}
            onChange={setText}
            className="min-w-40 grow basis-40"
          />
          <Select
            inline
            label={t("status.label")}
            value={status}
            onChange={(event) => void filter("status", event.target.value)}
          >
            <option value="">{t("status.all")}</option>
            {STATUSES.map((option) => (
              <option key={option}>{option}</option>
            ))}
          </Select>
          {machines.length > 1 && (
            <Select
              inline
              label={t("sessions.machine")}
              value={machineId}
              onChange={(event) => void filter("machine", event.target.value)}
            >
              <option value="">{t("sessions.allMachines")}</option>
              {machines.map((machine) => (
                <option key={machine.id} value={machine.id}>
                  {visible(machine.nickname)}
                </option>
              ))}
            </Select>
          )}
        </div>
      )}
      {error && <Alert className="m-4">{explain(error)}</Alert>}
      {shown.length > 0 ? (
        <ul aria-label={t("sessions.list")}>
          {shown.map((place) => (
            <SessionRow key={place.session.id} place={place} />
          ))}
        </ul>
      ) : isPending && !error ? (
        <Skeleton />
      ) : machines.length === 0 && !error ? (
        <Empty icon={<MonitorSmartphone />} title={t("sessions.noMachine")} hint={t("sessions.noMachineHint")}>
          <Link to="/machines" search={{}} className={buttonClass("primary")}>
            {t("machines.connect")}
          </Link>
        </Empty>
      ) : places.length === 0 ? (
        !error && <Empty icon={<ListTree />} title={t("sessions.none")} hint={t("sessions.noneHint")} />
      ) : (
        <Empty icon={<SearchX />} title={t("sessions.noMatch")} hint={t("sessions.noMatchHint")}>
          <Button onClick={clear}>{t("sessions.clear")}</Button>
        </Empty>
      )}
      <Suspense>{launching && <Launch onClose={() => setLaunching(false)} />}</Suspense>
    </Page>
  );
}
