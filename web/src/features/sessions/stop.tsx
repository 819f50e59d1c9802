import { useState } from "react";
import { api, type Session } from "@/api/client";
import { keys } from "@/api/query-keys";
import { t, visible } from "@/text";
import { Confirm } from "@/ui/dialog";
import { Check } from "@/ui/field";

interface StopProps {
  daemonId: string;
  targetId: string;
  body: { type: string; sessionId: string };
  worktree: Session["worktree"] | undefined;
  onClose: () => void;
}

/** Stops an agent, with its worktree if the user wants that. */
export default function Stop({ daemonId, targetId, body, worktree, onClose }: StopProps) {
  const [removeWorktree, setRemoveWorktree] = useState(false);
  return (
    <Confirm
      open
      onOpenChange={(open) => !open && onClose()}
      title={t("session.stopTitle")}
      why={t("session.stopWhy")}
      action={t("session.stop")}
      onConfirm={async () => {
        const options = removeWorktree ? { removeWorktree } : {};
        await api.post("/api/v1/shortcuts/{daemonId}/stop", { path: { daemonId }, body: { ...body, ...options } });
      }}
      changes={[keys.machine(daemonId), keys.status(targetId)]}
    >
      {worktree?.created && !worktree.removed && (
        <div className="mt-3">
          <Check label={t("worktree.removeToo")} checked={removeWorktree} onChange={setRemoveWorktree} />
          {removeWorktree && (
            <p className="mt-1 text-sm text-soft">
              {t("worktree.why", visible(worktree.path), visible(worktree.branch))}
            </p>
          )}
        </div>
      )}
    </Confirm>
  );
}
