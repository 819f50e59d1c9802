import { useNavigate } from "@tanstack/react-router";
import { api } from "@/api/client";
import { keys } from "@/api/query-keys";
import { machineOf } from "@/api/target-id";
import { refresh, useAction } from "@/api/use-action";

/** Continue an ended session: its page shows it with the whole chat. */
export function useResume() {
  const navigate = useNavigate();
  return useAction(async ({ id, targetId, type }: { id: string; targetId: string; type: string }) => {
    const daemonId = machineOf(targetId);
    const body = { type, resume: id };
    const launched = await api.post("/api/v1/shortcuts/{daemonId}/launch", { path: { daemonId }, body });
    await refresh(keys.sessions(), keys.machine(daemonId), keys.history(), keys.status(targetId), keys.chat(targetId));
    await navigate({ to: "/sessions/$targetId", params: { targetId: launched.sessionTargetId } });
  });
}
