import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState, type FormEvent } from "react";
import { api, explain } from "@/api/client";
import { machineQuery, machinesQuery, queryClient } from "@/api/queries";
import { keepForm, readForm } from "@/session/drafts";
import { t, visible } from "@/text";
import { Button } from "@/ui/button";
import { Dialog } from "@/ui/dialog";
import { Alert } from "@/ui/feedback";
import { Field, Select } from "@/ui/field";

/** The name of what was entered last: a refusal, a new log-in or the next launch begins with it. */
const DRAFT = "launch";
const EMPTY = { daemonId: "", type: "", dir: "" };

export default function Launch({ onClose, daemonId: given }: { onClose: () => void; daemonId?: string }) {
  const navigate = useNavigate();
  const [last] = useState(() => readForm(DRAFT, EMPTY));
  const listed = useQuery(machinesQuery);
  const machines = listed.data?.filter((one) => (one as { connected?: boolean }).connected !== false) ?? [];
  const [chosen, setChosen] = useState(given ?? last.daemonId);
  const daemonId = machines.some((machine) => machine.id === chosen) ? chosen : (machines[0]?.id ?? "");
  const machine = useQuery({ ...machineQuery(daemonId), enabled: daemonId !== "" });
  const agents = (machine.data?.availableProviders ?? []).filter((one) => one.installed && !one.error);
  const [wanted, setType] = useState(last.type);
  const type = agents.some((agent) => agent.type === wanted) ? wanted : (agents[0]?.type ?? "");
  const [dir, setDir] = useState(last.dir);
  const [refusal, setRefusal] = useState<string>();
  const unread = (listed.data ? null : listed.error) ?? (machine.data ? null : machine.error);
  const error = refusal ?? (unread ? explain(unread) : undefined);
  const [busy, setBusy] = useState(false);

  async function submit(event: FormEvent) {
    event.preventDefault();
    keepForm(DRAFT, { daemonId, type, dir });
    setBusy(true);
    setRefusal(undefined);
    try {
      const body = { type, ...(dir.trim() ? { dir: dir.trim() } : {}) };
      const launched = await api.post("/api/v1/shortcuts/{daemonId}/launch", { path: { daemonId }, body });
      void queryClient.invalidateQueries({ queryKey: ["machine", daemonId] });
      onClose();
      await navigate({ to: "/sessions/$targetId", params: { targetId: launched.sessionTargetId } });
    } catch (failure) {
      setRefusal(explain(failure));
      setBusy(false);
    }
  }

  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title={t("launch.title")}>
      <form onSubmit={submit} className="space-y-4">
        <Select
          label={t("launch.machine")}
          value={daemonId}
          onChange={(event) => setChosen(event.target.value)}
          disabled={machines.length === 0}
          hint={listed.data && machines.length === 0 ? t("launch.noMachines") : undefined}
        >
          {machines.map((one) => (
            <option key={one.id} value={one.id}>
              {visible(one.nickname)}
            </option>
          ))}
        </Select>
        <Select
          label={t("launch.agent")}
          value={type}
          onChange={(event) => setType(event.target.value)}
          disabled={agents.length === 0}
          hint={machine.data && agents.length === 0 ? t("launch.noAgents") : undefined}
        >
          {agents.map((agent) => (
            <option key={agent.type} value={agent.type}>
              {visible(agent.displayName)}
            </option>
          ))}
        </Select>
        <Field
          label={t("launch.directory")}
          hint={t("launch.directoryHint")}
          placeholder="~/project"
          spellCheck={false}
          autoCapitalize="none"
          value={dir}
          onChange={(event) => setDir(event.target.value)}
        />
        {error && <Alert>{error}</Alert>}
        <div className="flex justify-end">
          <Button type="submit" look="primary" busy={busy} disabled={type === ""}>
            {t("launch.submit")}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
