import { useQuery } from "@tanstack/react-query";
import { SquareTerminal, X } from "lucide-react";
import { lazy, Suspense, useEffect, useState, type FormEvent } from "react";
import { api, explain } from "@/api/client";
import { keys } from "@/api/query-keys";
import { t, visible } from "@/text";
import { Button } from "@/ui/button";
import { Confirm } from "@/ui/dialog";
import { Alert, Skeleton } from "@/ui/feedback";
import { Field } from "@/ui/field";

const Terminal = lazy(() => import("./terminal"));

/** The named terminals of a machine: open one, or begin another by a new name. */
export function Terminals({ daemonId }: { daemonId: string }) {
  const [open, setOpen] = useState<string>();
  const [name, setName] = useState("");
  const [ending, setEnding] = useState<string>();
  const terminals = useQuery({
    queryKey: keys.terminals(daemonId),
    staleTime: 0,
    queryFn: async ({ signal }) =>
      (await api.get("/api/v1/daemons/{daemonId}/terminals", { path: { daemonId }, signal })).terminals,
  });
  const { refetch } = terminals;
  // One that has just been begun is in the list when another one is opened.
  useEffect(() => void refetch(), [open, refetch]);
  function start(event: FormEvent) {
    event.preventDefault();
    if (name.trim()) setOpen(name.trim());
    setName("");
  }
  const list = terminals.data ?? [];
  const names =
    open !== undefined && !list.some((terminal) => terminal.name === open)
      ? [...list, { name: open, busy: false }]
      : list;
  return (
    <div className="space-y-3 px-4 pb-4 sm:px-6">
      {terminals.error && <Alert>{explain(terminals.error)}</Alert>}
      <div className="flex flex-wrap items-end gap-2">
        {names.map((terminal) => (
          <span key={terminal.name} className="flex">
            <Button
              className="max-w-60 rounded-r-none"
              aria-pressed={terminal.name === open}
              look={terminal.name === open ? "primary" : "plain"}
              icon={<SquareTerminal className="size-4 shrink-0" aria-hidden />}
              onClick={() => setOpen(terminal.name === open ? undefined : terminal.name)}
            >
              <span className="truncate">{visible(terminal.name)}</span>
            </Button>
            <Button
              className="rounded-l-none border-l-0"
              icon={<X className="size-4" aria-hidden />}
              aria-label={t("terminals.endAction")} // the name alone names the button that opens it
              title={t("terminals.end", visible(terminal.name))}
              onClick={() => setEnding(terminal.name)}
            />
          </span>
        ))}
        <form onSubmit={start} className="flex items-end gap-2">
          <Field
            label={t("terminals.name")}
            className="w-44"
            maxLength={64}
            spellCheck={false}
            autoCapitalize="none"
            value={name}
            onChange={(event) => setName(event.target.value)}
          />
          <Button type="submit" disabled={!name.trim()}>
            {t("terminals.open")}
          </Button>
        </form>
      </div>
      {open !== undefined && (
        <div className="h-96 overflow-hidden rounded-lg border border-line">
          <Suspense fallback={<Skeleton />}>
            <Terminal
              key={open}
              path={`/api/v1/daemons/${encodeURIComponent(daemonId)}/terminals/${encodeURIComponent(open)}`}
            />
          </Suspense>
        </div>
      )}
      <Confirm
        open={ending !== undefined}
        onOpenChange={(next) => !next && setEnding(undefined)}
        title={t("terminals.endTitle", visible(ending ?? ""))}
        why={t("terminals.endWhy")}
        action={t("terminals.endAction")}
        onConfirm={async () => {
          if (ending === undefined) return;
          await api.delete("/api/v1/daemons/{daemonId}/terminals/{name}", { path: { daemonId, name: ending } });
          if (open === ending) setOpen(undefined);
        }}
        changes={[keys.terminals(daemonId)]}
      />
    </div>
  );
}
