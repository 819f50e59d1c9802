import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { File, FileQuestion, FileSymlink, Folder, FolderOpen, RefreshCw } from "lucide-react";
import type { Schemas } from "outrider-client";
import { useEffect, useMemo, useRef } from "react";
import { api, ApiError, explain } from "@/api/client";
import { keys } from "@/api/query-keys";
import { t, visible } from "@/text";
import { bytes } from "@/text/format";
import { Button, buttonClass } from "@/ui/button";
import { useHighlighted } from "@/ui/code/code";
import { languageOf } from "@/ui/code/languages";
import { CopyButton } from "@/ui/copy";
import { Alert, Empty, Skeleton } from "@/ui/feedback";
import { RowLink } from "@/ui/row-link";

type Entry = Schemas["FileEntry"];

interface FilesProps {
  targetId: string;
  /** The path inside the session's directory; empty for that itself. */
  path: string;
  /** The name of the session's directory. */
  root: string;
}

/** The session's directory: what is in it, and the text of a file. */
export default function Files({ targetId, path, root }: FilesProps) {
  const files = useQuery({
    queryKey: keys.files(targetId, path),
    gcTime: 0,
    refetchOnMount: "always",
    queryFn: ({ signal }) =>
      api.get("/api/v1/shortcuts/{ideId}/files", { path: { ideId: targetId }, query: path ? { path } : {}, signal }),
  });
  const here = useRef<HTMLDivElement>(null);
  const first = useRef(true);
  // The link that led here is gone: the keyboard goes on at the top of what it led to.
  useEffect(() => {
    if (first.current) first.current = false;
    else here.current?.focus({ preventScroll: true });
    here.current?.scrollTo(0, 0);
  }, [path]);
  const read = files.data;
  const missing = files.error instanceof ApiError && files.error.status === 404;

  return (
    <div ref={here} tabIndex={-1} className="flex h-full flex-col outline-none">
      <div className="flex shrink-0 items-center gap-2 border-b border-line px-3 py-1.5 sm:px-6">
        <Path targetId={targetId} path={path} root={root} />
        {read && "text" in read && (
          <span className="ml-auto flex shrink-0 items-center gap-2 text-xs text-faint">
            {bytes(read.size)}
            {read.text !== null && <CopyButton text={read.text} />}
          </span>
        )}
        <Button
          look="quiet"
          className={read && "text" in read ? "" : "ml-auto"}
          busy={files.isFetching}
          icon={<RefreshCw className="size-4" aria-hidden />}
          aria-label={t("changes.refresh")}
          title={t("changes.refresh")}
          onClick={() => void files.refetch()}
        />
      </div>
      <div className="min-h-0 grow overflow-auto">
        {missing ? (
          <Empty icon={<FileQuestion />} title={t("files.missing")} hint={t("files.missingHint")}>
            <Link
              to="/sessions/$targetId"
              params={{ targetId }}
              search={{ tab: "files" }}
              className={buttonClass("primary")}
            >
              {t("files.toRoot")}
            </Link>
          </Empty>
        ) : files.error ? (
          <Alert className="m-4">{explain(files.error)}</Alert>
        ) : !read ? (
          <Skeleton rows={6} />
        ) : "entries" in read ? (
          <Entries targetId={targetId} path={path} entries={read.entries} truncated={read.truncated} />
        ) : read.binary || read.text === null ? (
          <Empty icon={<File />} title={t("files.binary")} hint={t("files.binaryHint", bytes(read.size))} />
        ) : (
          <Text text={read.text} name={path} truncated={read.truncated} />
        )}
      </div>
    </div>
  );
}

function Path({ targetId, path, root }: FilesProps) {
  const parts = path.split("/").filter(Boolean);
  const link = "rounded-sm px-1 text-accent hover:underline";
  return (
    <nav aria-label={t("files.path")} className="min-w-0 overflow-x-auto">
      <ol className="flex items-center text-sm whitespace-nowrap">
        <li>
          {parts.length === 0 ? (
            <span aria-current="page" className="px-1 font-medium">
              {visible(root)}
            </span>
          ) : (
            <Link to="/sessions/$targetId" params={{ targetId }} search={{ tab: "files" }} className={link}>
              {visible(root)}
            </Link>
          )}
        </li>
        {parts.map((part, i) => (
          <li key={i} className="flex items-center">
            <span className="text-faint" aria-hidden>
              /
            </span>
            {i === parts.length - 1 ? (
              <span aria-current="page" className="px-1 font-medium">
                {visible(part)}
              </span>
            ) : (
              <Link
                to="/sessions/$targetId"
                params={{ targetId }}
                search={{ tab: "files", path: parts.slice(0, i + 1).join("/") }}
                className={link}
              >
                {visible(part)}
              </Link>
            )}
          </li>
        ))}
      </ol>
    </nav>
  );
}

const ICONS = { dir: Folder, link: FileSymlink, file: File };

interface EntriesProps {
  targetId: string;
  path: string;
  entries: Entry[];
  truncated: boolean;
}

function Entries({ targetId, path, entries, truncated }: EntriesProps) {
  // Directories first; the service has sorted them by name.
  const sorted = useMemo(() => [...entries].sort((a, b) => +(b.type === "dir") - +(a.type === "dir")), [entries]);
  if (entries.length === 0) return <Empty icon={<FolderOpen />} title={t("files.empty")} hint={t("files.emptyHint")} />;
  return (
    <>
      {truncated && (
        <p className="border-b border-line bg-waiting-soft px-4 py-1.5 text-sm text-waiting sm:px-6">
          {t("files.tooMany")}
        </p>
      )}
      <ul aria-label={t("session.files")}>
        {sorted.map((entry) => {
          const Icon = ICONS[entry.type] ?? File; // a newer service may have more types
          return (
            <li
              key={entry.name}
              className="relative flex h-9 items-center gap-2.5 border-b border-line px-4 hover:bg-hover has-focus-visible:bg-hover sm:px-6 pointer-coarse:h-11"
            >
              <Icon
                className={entry.type === "dir" ? "size-4 shrink-0 text-accent" : "size-4 shrink-0 text-faint"}
                aria-hidden
              />
              <RowLink
                to="/sessions/$targetId"
                params={{ targetId }}
                search={{ tab: "files", path: path ? `${path}/${entry.name}` : entry.name }}
              >
                {visible(entry.name)}
                {entry.type === "dir" && <span className="text-faint">/</span>}
              </RowLink>
              {entry.type === "file" && (
                <span className="ml-auto shrink-0 text-xs text-faint tabular-nums">{bytes(entry.size)}</span>
              )}
            </li>
          );
        })}
      </ul>
    </>
  );
}

function Text({ text, name, truncated }: { text: string; name: string; truncated: boolean }) {
  const highlighted = useHighlighted(text, languageOf(name));
  const numbers = useMemo(() => {
    const lines = text.split("\n").length - (text.endsWith("\n") ? 1 : 0);
    return Array.from({ length: lines }, (_, i) => i + 1).join("\n");
  }, [text]);
  if (text === "") return <Empty icon={<File />} title={t("files.emptyFile")} />;
  return (
    <>
      {truncated && (
        <p className="border-b border-line bg-waiting-soft px-4 py-1.5 text-sm text-waiting sm:px-6">
          {t("files.truncated")}
        </p>
      )}
      <div className="flex min-w-max py-2 font-mono text-sm">
        <pre aria-hidden className="sticky left-0 bg-ground px-3 text-right text-faint select-none sm:pl-6">
          {numbers}
        </pre>
        <pre className="pr-4" tabIndex={0} aria-label={name}>
          <code>{highlighted ?? text}</code>
        </pre>
      </div>
    </>
  );
}
