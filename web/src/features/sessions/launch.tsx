import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useRef, useState, type FormEvent } from "react";
import { api, explain } from "@/api/client";
import { keys } from "@/api/query-keys";
import { refresh, useAction } from "@/api/use-action";
import { machineQuery, machinesQuery } from "@/features/machines/queries";
import { t, visible } from "@/text";
import { Button } from "@/ui/button";
import { Dialog, DialogActions } from "@/ui/dialog";
import { keepForm, readForm } from "@/ui/drafts";
import { Alert } from "@/ui/feedback";
import { Check, Field, Select } from "@/ui/field";
import { useFleet } from "./fleet";
import { recentDirectories } from "./places";

/** The name of what was entered last: a refusal, a new log-in or the next launch begins with it. */
const DRAFT = "launch";
const EMPTY = { daemonId: "", type: "", dir: "", model: "", inWorktree: false, branch: "", base: "" };
/** Among how many ended sessions recent directories are looked for. */
const ENDED = 100;

export default function Launch({ onClose, daemonId: given }: { onClose: () => void; daemonId?: string }) {
  const navigate = useNavigate();
  const [form, setForm] = useState(() => ({ ...readForm(DRAFT, EMPTY), ...(given && { daemonId: given }) }));
  const set = (change: Partial<typeof EMPTY>) => setForm((old) => ({ ...old, ...change }));
  const listed = useQuery(machinesQuery);
  const machines = listed.data?.filter((machine) => machine.connected !== false) ?? [];
  const daemonId = machines.some((machine) => machine.id === form.daemonId) ? form.daemonId : (machines[0]?.id ?? "");
  const machine = useQuery({ ...machineQuery(daemonId), enabled: daemonId !== "" });
  const agents = (machine.data?.availableProviders ?? []).filter((agent) => agent.installed && !agent.error);
  const agent = agents.find(({ type }) => type === form.type) ?? agents[0];
  const hasWorktrees = agent !== undefined && agent.category !== "ide";
  const directory = useRef<HTMLInputElement>(null);
  const unread = (listed.data ? null : listed.error) ?? (machine.data ? null : machine.error);

  const launch = useAction(async (type: string) => {
    const [dir, model, branch, base] = [form.dir.trim(), form.model.trim(), form.branch.trim(), form.base.trim()];
    keepForm(DRAFT, { ...form, daemonId, type, dir });
    const worktree = hasWorktrees && form.inWorktree ? { worktree: { branch, ...(base && { base }) } } : {};
    const body = { type, ...(dir && { dir }), ...(model && { model }), ...worktree };
    const launched = await api.post("/api/v1/shortcuts/{daemonId}/launch", { path: { daemonId }, body });
    keepForm(DRAFT, { ...form, daemonId, type, dir, branch: "" }); // the next one has a branch of its own
    void refresh(keys.machine(daemonId));
    onClose();
    await navigate({ to: "/sessions/$targetId", params: { targetId: launched.sessionTargetId } });
  });
  const error = launch.error ?? (unread ? explain(unread) : undefined);

  function submit(event: FormEvent) {
    event.preventDefault();
    if (agent) launch.run(agent.type);
  }

  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title={t("launch.title")} first={directory}>
      <form onSubmit={submit} className="space-y-4">
        <Select
          label={t("launch.machine")}
          value={daemonId}
          onChange={(event) => set({ daemonId: event.target.value })}
          disabled={machines.length === 0}
          hint={listed.data && machines.length === 0 ? t("launch.noMachines") : undefined}
        >
          {machines.map((machine) => (
            <option key={machine.id} value={machine.id}>
              {visible(machine.nickname)}
            </option>
          ))}
        </Select>
        <Select
          label={t("launch.agent")}
          value={agent?.type ?? ""}
          onChange={(event) => set({ type: event.target.value })}
          disabled={agents.length === 0}
          hint={machine.data && agents.length === 0 ? t("launch.noAgents") : undefined}
        >
          {agents.map(({ type, displayName }) => (
            <option key={type} value={type}>
              {visible(displayName)}
            </option>
          ))}
        </Select>
        <div>
          <Field
            ref={directory}
            label={t("launch.directory")}
            hint={t("launch.directoryHint")}
            placeholder="~/project"
            spellCheck={false}
            autoCapitalize="none"
            value={form.dir}
            onChange={(event) => set({ dir: event.target.value })}
          />
          <Recent daemonId={daemonId} onChoose={(dir) => set({ dir })} />
        </div>
        {hasWorktrees && (
          <div>
            <Check
              label={t("launch.worktree")}
              checked={form.inWorktree}
              onChange={(inWorktree) => set({ inWorktree })}
            />
            {form.inWorktree && (
              <div className="mt-2 grid gap-4 border-l-2 border-line pl-3 sm:grid-cols-2">
                <Field
                  label={t("launch.branch")}
                  hint={t("launch.branchHint")}
                  required
                  autoFocus
                  maxLength={1024}
                  spellCheck={false}
                  autoCapitalize="none"
                  value={form.branch}
                  onChange={(event) => set({ branch: event.target.value })}
                />
                <Field
                  label={t("launch.base")}
                  hint={t("launch.baseHint")}
                  placeholder="HEAD"
                  maxLength={1024}
                  spellCheck={false}
                  autoCapitalize="none"
                  value={form.base}
                  onChange={(event) => set({ base: event.target.value })}
                />
              </div>
            )}
          </div>
        )}
        <Field
          label={t("launch.model")}
          hint={t("launch.modelHint")}
          maxLength={1024}
          spellCheck={false}
          autoCapitalize="none"
          value={form.model}
          onChange={(event) => set({ model: event.target.value })}
        />
        {error && <Alert>{error}</Alert>}
        <DialogActions>
          <Button type="submit" look="primary" busy={launch.busy} disabled={!agent}>
            {t("launch.submit")}
          </Button>
        </DialogActions>
      </form>
    </Dialog>
  );
}

/** The directories in which agents worked last on a machine. */
function Recent({ daemonId, onChoose }: { daemonId: string; onChoose: (directory: string) => void }) {
  const { places } = useFleet();
  const ended = useQuery({
    queryKey: keys.recentlyEnded(),
    staleTime: 60_000,
    queryFn: async ({ signal }) =>
      (await api.get("/api/v1/sessions", { query: { state: "ended", limit: ENDED }, signal })).sessions,
  }).data;
  const directories = recentDirectories([...places.map(({ session }) => session), ...(ended ?? [])], daemonId);
  if (directories.length === 0) return null;
  return (
    <div role="group" aria-label={t("launch.recent")} className="mt-2 flex flex-wrap items-center gap-1.5">
      <span className="text-xs text-faint" aria-hidden>
        {t("launch.recent")}
      </span>
      {directories.map((directory) => (
        <Button
          key={directory}
          className="h-7 max-w-full px-2 font-mono text-xs font-normal"
          onClick={() => onChoose(directory)}
        >
          <span className="truncate">{visible(directory)}</span>
        </Button>
      ))}
    </div>
  );
}
