import {
  Check,
  FilePen,
  FileText,
  Globe,
  Loader2,
  Search,
  SquareTerminal,
  Wrench,
  X,
  type LucideIcon,
} from "lucide-react";
import { useMemo } from "react";
import type { Message, Tool } from "@/api/client";
import { t, visible } from "@/text";
import { duration } from "@/text/format";
import { CodeBlock } from "@/ui/code/code";
import { FileDiffs, linesChanged } from "@/ui/code/file-diffs";
import { Fold, firstLine } from "./fold";
import { readCall } from "./items";

const ICONS: Record<Tool["kind"], LucideIcon> = {
  read: FileText,
  edit: FilePen,
  execute: SquareTerminal,
  search: Search,
  fetch: Globe,
  other: Wrench,
};

interface ToolCallProps {
  call: Message;
  result: Message | undefined;
  /** Whether it may still run: nothing says that it has ended. */
  running: boolean;
}

/** A tool call in one line, which opens: what it does, how it ended, what it has changed. */
export function ToolCall({ call, result, running }: ToolCallProps) {
  const { name, summary, input, language, command } = useMemo(() => readCall(call.content), [call.content]);
  // The result knows how the call has ended; the call may have been read while it ran.
  const tool = result?.tool ?? call.tool;
  const diff = tool?.diff ?? [];
  const title = tool?.title || name;
  const run = tool?.kind === "execute" ? (command ?? title) : command;
  const Icon = (tool && ICONS[tool.kind]) ?? (command === undefined ? Wrench : SquareTerminal); // a newer service has more
  return (
    <Fold
      icon={<Icon aria-hidden />}
      summary={
        run === undefined ? visible(title) : <code className="font-mono text-xs">$ {visible(firstLine(run))}</code>
      }
      more={run === undefined && !title.includes(summary) ? visible(summary) : undefined}
      note={<Outcome tool={tool} running={running && !result} />}
    >
      {run !== undefined ? (
        <CodeBlock text={run} language="bash" />
      ) : diff.length > 0 ? (
        <FileDiffs diffs={diff} />
      ) : (
        <CodeBlock text={input} language={language} />
      )}
      {run !== undefined && diff.length > 0 && <FileDiffs diffs={diff} />}
      {result && (diff.length === 0 || tool?.status === "failed") && (
        <>
          <div className="text-xs font-semibold text-faint">{t("session.result")}</div>
          {result.content.trim() ? (
            <CodeBlock text={result.content} />
          ) : (
            <p className="text-sm text-faint">{t("session.noResult")}</p>
          )}
        </>
      )}
    </Fold>
  );
}

/** How a call has ended, and how long it took. */
function Outcome({ tool, running }: { tool: Tool | null | undefined; running: boolean }) {
  const seconds = tool?.startedAt && tool.endedAt ? (tool.endedAt - tool.startedAt) / 1000 : 0;
  const took = seconds >= 1 && <span className="text-faint tabular-nums">{duration(seconds)}</span>;
  const { additions, deletions } = linesChanged(tool?.diff ?? []);
  const changed = additions + deletions > 0 && (
    <span className="font-mono tabular-nums">
      <span className="text-good">+{additions}</span> <span className="text-bad">−{deletions}</span>
    </span>
  );
  if (tool?.status === "failed" || tool?.exitCode) {
    return (
      <>
        {took}
        <span className="flex items-center gap-1 font-medium text-bad">
          <X className="size-3.5" strokeWidth={2.5} aria-hidden />
          {tool.exitCode ? t("tool.exit", tool.exitCode) : t("tool.failed")}
        </span>
      </>
    );
  }
  if (tool?.status === "completed") {
    return (
      <>
        {changed}
        {took}
        <Check className="size-3.5 text-good" strokeWidth={2.5} role="img" aria-label={t("tool.completed")} />
      </>
    );
  }
  if (!running) return changed;
  return (
    <span className="flex items-center gap-1 text-working">
      <Loader2 className="size-3 animate-turn" aria-hidden />
      {t("session.running")}
    </span>
  );
}
