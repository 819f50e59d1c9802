import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { CircleX, FolderX, History as HistoryIcon, RotateCcw, SearchX } from "lucide-react";
import { Suspense, useState } from "react";
import { api, explain, type EndReason, type Session } from "@/api/client";
import { keys } from "@/api/query-keys";
import { machineOf } from "@/api/target-id";
import { machinesQuery } from "@/features/machines/queries";
import { t, visible } from "@/text";
import { Button } from "@/ui/button";
import { cn } from "@/ui/cn";
import { Alert, Empty, Skeleton } from "@/ui/feedback";
import { SearchBox } from "@/ui/field";
import { Confirm } from "@/ui/lazy-confirm";
import { Page } from "@/ui/page";
import { RowLink } from "@/ui/row-link";
import { Status } from "@/ui/status";
import { Age } from "@/ui/time";
import { useFilterText } from "@/ui/use-filter-text";
import { useResume } from "./use-resume";
import { Workplace } from "./workplace";

const route = getRouteApi("/shell/history");
const PAGE = 50;

const ENDS: Record<EndReason, string> = {
  stopped: t("history.stopped"),
  exited: t("history.exited"),
  crashed: t("history.crashed"),
  machine_restarted: t("history.machine_restarted"),
};

/** Return why a session ended, in words; a newer service may have other reasons. */
function endOf(reason: Session["endReason"] | undefined): string | undefined {
  return reason ? (ENDS[reason] ?? reason) : undefined;
}

export function HistoryPage() {
  const { q: typed } = route.useSearch();
  const navigate = route.useNavigate();
  const [text, setText] = useFilterText(typed, (next) => navigate({ search: next ? { q: next } : {}, replace: true }));
  const q = (typed ?? "").trim();
  const history = useInfiniteQuery({
    queryKey: keys.historyPages(q),
    staleTime: 0,
    placeholderData: keepPreviousData,
    initialPageParam: undefined as string | undefined,
    queryFn: async ({ pageParam, signal }) => {
      const query = { state: "ended" as const, limit: PAGE, before: pageParam, q: q || undefined };
      return (await api.get("/api/v1/sessions", { query, signal })).sessions;
    },
    getNextPageParam: (page) => (page.length === PAGE ? page.at(-1)?.id : undefined),
  });
  const machines = useQuery(machinesQuery).data;
  const names = new Map(machines?.map((machine) => [machine.id, machine.nickname]));
  const list = history.data?.pages.flat() ?? [];
  return (
    <Page title={t("history.title")}>
      {(list.length > 0 || q !== "" || text !== "") && (
        <div className="sticky top-0 z-10 border-b border-line bg-ground px-4 py-2 sm:px-6">
          <SearchBox
            label={t("history.search")}
            placeholder={t("history.searchHint")}
            maxLength={200}
            value={text}
            onChange={setText}
          />
        </div>
      )}
      {history.error && <Alert className="m-4">{explain(history.error)}</Alert>}
      {history.isPending ? (
        <Skeleton />
      ) : list.length > 0 ? (
        <ul aria-label={t("history.list")} aria-busy={history.isPlaceholderData || undefined}>
          {list.map((session) => (
            <EndedRow key={session.id} session={session} machine={names.get(machineOf(session.targetId))} />
          ))}
        </ul>
      ) : history.error ? null : q === "" ? (
        <Empty icon={<HistoryIcon />} title={t("history.none")} hint={t("history.noneHint")} />
      ) : (
        <Empty icon={<SearchX />} title={t("history.noMatch")} hint={t("history.noMatchHint")}>
          <Button onClick={() => setText("")}>{t("history.clear")}</Button>
        </Empty>
      )}
      {history.hasNextPage && (
        <Button className="m-4 sm:mx-6" busy={history.isFetchingNextPage} onClick={() => void history.fetchNextPage()}>
          {t("history.older")}
        </Button>
      )}
    </Page>
  );
}

/** The looks of ends that may surprise. */
const LOOKS: Partial<Record<EndReason, string>> = { crashed: "text-bad", machine_restarted: "text-waiting" };

function EndedRow({ session, machine }: { session: Session; machine: string | undefined }) {
  const { run: resume, busy, error } = useResume();
  const [removing, setRemoving] = useState(false);
  const reason = session.notResumable ?? t("history.notResumable");
  const { worktree, endReason } = session;
  return (
    <li className="border-b border-line">
      <div className="relative grid grid-cols-[minmax(0,1fr)_auto] items-center gap-x-3 px-4 py-2 hover:bg-hover has-focus-visible:bg-hover sm:flex sm:px-6">
        <div className="flex min-w-0 grow flex-col">
          <div className="flex min-w-0 items-baseline gap-x-3">
            <RowLink
              to="/sessions/$targetId"
              params={{ targetId: session.targetId }}
              className="font-medium sm:min-w-2/5"
            >
              {visible(session.title ?? session.type)}
            </RowLink>
            {session.title && <span className="truncate text-sm text-faint max-sm:hidden">{session.name}</span>}
          </div>
          <p className="flex min-w-0 gap-x-3 text-sm text-faint">
            {session.title && <span className="shrink-0 sm:hidden">{session.name}</span>}
            {worktree ? (
              <Workplace session={session} />
            ) : (
              session.workspace && (
                <span className="truncate" title={visible(session.workspace.path)}>
                  {visible(session.workspace.path)}
                </span>
              )
            )}
            {machine && <span className="max-w-40 truncate sm:shrink-0">{visible(machine)}</span>}
          </p>
          {!session.resumable && (
            <p className="truncate text-xs text-faint" title={reason}>
              {reason}
            </p>
          )}
        </div>
        <div className="flex shrink-0 gap-x-3 text-xs whitespace-nowrap text-faint sm:w-32 sm:flex-col sm:items-end">
          <Status value={session.state ?? "ended"} className="sr-only" />
          <span
            className={cn("flex items-center gap-1 font-medium", endReason && LOOKS[endReason])}
            aria-hidden={!endReason}
          >
            {endReason === "crashed" && <CircleX className="size-3.5" strokeWidth={2.25} aria-hidden />}
            {endOf(endReason) ?? t("history.ended")}
          </span>
          {session.endedAt != null && <Age at={session.endedAt} />}
        </div>
        <div className="flex shrink-0 gap-2 max-sm:col-start-2 max-sm:row-span-2 max-sm:row-start-1 sm:min-w-26 sm:justify-end">
          {worktree?.created && !worktree.removed && (
            <Button
              look="quiet"
              className="relative"
              icon={<FolderX className="size-4" aria-hidden />}
              aria-label={t("worktree.remove")}
              title={t("worktree.remove")}
              onClick={() => setRemoving(true)}
            />
          )}
          {session.resumable && (
            <Button
              className="relative max-sm:w-10 max-sm:px-0"
              busy={busy}
              icon={<RotateCcw className="size-4" aria-hidden />}
              onClick={() => resume(session)}
            >
              <span className="max-sm:sr-only">{t("history.resume")}</span>
            </Button>
          )}
        </div>
      </div>
      {error && <Alert className="mx-4 mb-2 sm:mx-6">{error}</Alert>}
      <Suspense>
        {removing && worktree && (
          <Confirm
            open
            onOpenChange={setRemoving}
            title={t("worktree.removeTitle")}
            why={t("worktree.why", visible(worktree.path), visible(worktree.branch))}
            action={t("worktree.remove")}
            onConfirm={() => api.delete("/api/v1/shortcuts/{ideId}/worktree", { path: { ideId: session.targetId } })}
            changes={[keys.history()]}
          />
        )}
      </Suspense>
    </li>
  );
}
