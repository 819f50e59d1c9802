import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { ChevronRight, FileDiff, GitBranch, RefreshCw } from "lucide-react";
import { lazy, Suspense, useEffect, useMemo, useRef, useState, type FormEvent } from "react";
import { api, ApiError, explain } from "@/api/client";
import { keys } from "@/api/query-keys";
import { t, visible } from "@/text";
import { Button } from "@/ui/button";
import { cn } from "@/ui/cn";
import { Alert, Empty, Skeleton } from "@/ui/feedback";
import { TextInput } from "@/ui/field";
import { sessionSearch } from "../session-search";
import { patchesOf, type ChangedFile } from "./patches";

const DiffView = lazy(() => import("@/ui/code/diff-view"));

/** With more files or lines than this, files are closed at first. */
const OPEN_FILES = 12;
const OPEN_LINES = 400;

interface ChangesProps {
  targetId: string;
  /** The session's status: what an agent has changed is read again when its turn ends. */
  status: string;
  /** What the address has: the commit to compare with, and the file that was opened last. */
  base: string;
  file: string | undefined;
}

/** What differs from a commit in the session's directory. */
export default function Changes({ targetId, status, base, file }: ChangesProps) {
  const navigate = useNavigate();
  const [typed, setTyped] = useState(base);
  /** Set by the buttons that open or close all files; until then, each has its own default. */
  const [all, setAll] = useState<{ open: boolean; round: number }>();
  const diff = useQuery({
    queryKey: keys.changes(targetId, base),
    gcTime: 0,
    refetchOnMount: "always",
    queryFn: ({ signal }) =>
      api.get("/api/v1/shortcuts/{ideId}/diff", { path: { ideId: targetId }, query: base ? { base } : {}, signal }),
  });
  const { refetch } = diff;
  const show = (change: { base?: string; file?: string | undefined }) => {
    const search = sessionSearch({ tab: "changes", base, file, ...change });
    return navigate({ to: "/sessions/$targetId", params: { targetId }, search, replace: true });
  };
  const previous = useRef(status);
  useEffect(() => {
    if (previous.current === "generating" && status !== "generating") void refetch();
    previous.current = status;
  }, [status, refetch]);
  const changes = diff.data;
  const patches = useMemo(
    () => (changes ? patchesOf(changes.files, changes.patch) : new Map<string, string>()),
    [changes],
  );

  if (diff.error instanceof ApiError && diff.error.code === "NO_REPOSITORY") {
    return (
      <Empty icon={<GitBranch />} title={t("changes.noRepository")} hint={t("changes.noRepositoryHint")}>
        <Button onClick={() => void refetch()} busy={diff.isFetching}>
          {t("app.retry")}
        </Button>
      </Empty>
    );
  }
  const additions = changes?.files.reduce((sum, file) => sum + file.additions, 0) ?? 0;
  const deletions = changes?.files.reduce((sum, file) => sum + file.deletions, 0) ?? 0;

  function compare(event: FormEvent) {
    event.preventDefault();
    const next = typed.trim();
    if (next === base) void refetch();
    else void show({ base: next });
  }

  return (
    <div className="h-full overflow-y-auto">
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2 border-b border-line px-4 py-2 sm:px-6">
        {changes && (
          <p className="flex min-w-0 items-center gap-1.5 text-sm">
            <GitBranch className="size-4 shrink-0 text-faint" aria-hidden />
            <span className="truncate font-medium">
              {changes.branch === null ? t("changes.detached") : visible(changes.branch)}
            </span>
            {changes.ahead > 0 && (
              <span className="shrink-0 text-faint">{t("changes.ahead", changes.ahead, changes.base)}</span>
            )}
          </p>
        )}
        <form onSubmit={compare} className="ml-auto flex items-center gap-2 max-sm:ml-0 max-sm:w-full">
          <label htmlFor="diff-base" className="shrink-0 text-sm text-soft">
            {t("changes.base")}
          </label>
          <TextInput
            id="diff-base"
            value={typed}
            placeholder="HEAD"
            spellCheck={false}
            autoCapitalize="none"
            onChange={(event) => setTyped(event.target.value)}
            className="h-7 text-sm sm:w-36"
          />
          <Button
            type="submit"
            look="quiet"
            busy={diff.isFetching}
            icon={<RefreshCw className="size-4" aria-hidden />}
            aria-label={t("changes.refresh")}
            title={t("changes.refresh")}
          />
        </form>
      </div>
      {diff.error && <Alert className="m-4">{explain(diff.error)}</Alert>}
      {changes?.truncated && (
        <p className="border-b border-line bg-waiting-soft px-4 py-1.5 text-sm text-waiting sm:px-6">
          {t("changes.truncated")}
        </p>
      )}
      {diff.isPending ? (
        <Skeleton rows={6} />
      ) : !changes || diff.error ? null : changes.files.length === 0 ? (
        <Empty icon={<FileDiff />} title={t("changes.none")} hint={t("changes.noneHint", changes.base)} />
      ) : (
        <>
          <div className="flex min-h-12 items-center px-4 py-2 text-sm text-soft sm:px-6">
            <p className="mr-auto">
              {t("changes.files", changes.files.length)} <Counts additions={additions} deletions={deletions} />
            </p>
            {changes.files.length > 1 &&
              [true, false].map((open) => (
                <Button
                  key={String(open)}
                  look="quiet"
                  className="px-2"
                  onClick={() => setAll({ open, round: (all?.round ?? 0) + 1 })}
                >
                  {t(open ? "changes.openAll" : "changes.closeAll")}
                </Button>
              ))}
          </div>
          <ul aria-label={t("session.changes")} className="space-y-3 px-2 pb-6 sm:px-6">
            {changes.files.map((changed) => (
              <FileChanges
                key={`${all?.round ?? 0} ${changed.path}`}
                file={changed}
                patch={patches.get(changed.path)}
                truncated={changes.truncated}
                open={
                  all?.open ??
                  (changed.path === file ||
                    (changes.files.length <= OPEN_FILES && changed.additions + changed.deletions <= OPEN_LINES))
                }
                selected={all === undefined && changed.path === file}
                onToggle={(open) => void show({ file: open ? changed.path : undefined })}
              />
            ))}
          </ul>
        </>
      )}
    </div>
  );
}

function Counts({ additions, deletions }: { additions: number; deletions: number }) {
  return (
    <span className="shrink-0 font-mono text-xs tabular-nums">
      <span className="text-good">+{additions}</span> <span className="text-bad">−{deletions}</span>
    </span>
  );
}

const LOOKS: Record<ChangedFile["status"], string> = {
  added: "text-good",
  untracked: "text-good",
  deleted: "text-bad",
  modified: "text-soft",
  renamed: "text-accent",
};

interface FileProps {
  file: ChangedFile;
  patch: string | undefined;
  truncated: boolean;
  open: boolean;
  /** Whether it is the one that the address names; it is scrolled to. */
  selected: boolean;
  onToggle: (open: boolean) => void;
}

function FileChanges({ file, patch, truncated, open: first, selected, onToggle }: FileProps) {
  const [open, setOpen] = useState(first);
  const row = useRef<HTMLLIElement>(null);
  const [atFirst] = useState(selected);
  useEffect(() => {
    if (atFirst) row.current?.scrollIntoView({ block: "start" });
  }, [atFirst]);
  return (
    <li ref={row} className="overflow-clip rounded-md border border-line">
      <h2 className="sticky top-0 z-10 bg-sunken font-normal">
        <button
          type="button"
          data-row
          aria-expanded={open}
          onClick={() => {
            setOpen(!open);
            onToggle(!open);
          }}
          className="flex min-h-9 w-full items-center gap-2 px-2.5 py-1.5 text-left text-sm -outline-offset-2 hover:bg-hover pointer-coarse:min-h-11"
        >
          <ChevronRight
            className={cn("size-3.5 shrink-0 text-faint transition-transform", open && "rotate-90")}
            aria-hidden
          />
          <span className="min-w-0 font-mono text-xs wrap-anywhere">
            {file.oldPath !== null && <span className="text-faint">{visible(file.oldPath)} → </span>}
            {visible(file.path)}
          </span>
          <span className={cn("ml-auto shrink-0 pl-2 text-xs", LOOKS[file.status])}>{file.status}</span>
          {!file.binary && <Counts additions={file.additions} deletions={file.deletions} />}
        </button>
      </h2>
      {open && (
        <div className="border-t border-line">
          {file.binary ? (
            <p className="px-4 py-3 text-sm text-faint">{t("changes.binary")}</p>
          ) : patch === undefined ? (
            <p className="px-4 py-3 text-sm text-faint">{t(truncated ? "changes.cut" : "changes.noLines")}</p>
          ) : (
            <Suspense fallback={<Skeleton rows={3} />}>
              <DiffView patch={patch} path={file.path} />
            </Suspense>
          )}
        </div>
      )}
    </li>
  );
}
