import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, explain } from "@/api/client";
import { keys } from "@/api/query-keys";
import { machineOf } from "@/api/target-id";
import { queryClient } from "@/api/query-client";

/** Continue an ended session: its page shows it with the whole chat. */
export function useResume() {
  const navigate = useNavigate();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string>();
  async function resume(session: { id: string; targetId: string; type: string }) {
    const daemonId = machineOf(session.targetId);
    setBusy(true);
    setError(undefined);
    try {
      const body = { type: session.type, resume: session.id };
      const launched = await api.post("/api/v1/shortcuts/{daemonId}/launch", { path: { daemonId }, body });
      await Promise.all(
        [keys.sessions(), keys.machine(daemonId), keys.history(), keys.status(session.targetId), keys.chat(session.targetId)].map((queryKey) =>
          queryClient.invalidateQueries({ queryKey }),
        ),
      );
      await navigate({ to: "/sessions/$targetId", params: { targetId: launched.sessionTargetId } });
    } catch (failure) {
      setError(explain(failure));
    } finally {
      setBusy(false);
    }
  }
  return { busy, error, resume };
}
