import { memo } from "react";
import { api, type Control } from "@/api/client";
import { keys } from "@/api/query-keys";
import { useAction } from "@/api/use-action";
import { t } from "@/text";
import { cn } from "@/ui/cn";
import { Select } from "@/ui/field";

/** Return what changes the agent's settings. */
export const useControls = (targetId: string) =>
  useAction(
    (chosen: Record<string, string | boolean>) =>
      api.post("/api/v1/shortcuts/{ideId}/chat", { path: { ideId: targetId }, body: { controls: chosen } }),
    { changes: [keys.status(targetId)] },
  );

interface ControlsProps {
  controls: Control[];
  set: (chosen: Record<string, string | boolean>) => void;
  busy: boolean;
  /** Whether a phone, too, has room for them. */
  phone: boolean;
}

/** The agent's settings, such as its model and mode. What is shown is what the agent reports. */
export const Controls = memo(function Controls({ controls, set, busy, phone }: ControlsProps) {
  if (controls.length === 0) return null;
  return (
    <div
      role="group"
      aria-label={t("session.controls")}
      className={cn(
        "flex max-w-full items-center gap-x-3 overflow-x-auto px-2 py-1 max-sm:w-full max-sm:border-t max-sm:border-line sm:flex-wrap [&>*]:shrink-0",
        !phone && "max-sm:hidden",
      )}
    >
      {controls.map((control) =>
        control.type === "toggle" ? (
          <label key={control.id} className="flex items-center gap-1.5 text-sm text-soft">
            <input
              type="checkbox"
              className="size-4 accent-accent-fill"
              checked={control.value === true}
              disabled={busy}
              onChange={(event) => set({ [control.id]: event.target.checked })}
            />
            {control.label}
          </label>
        ) : control.type !== "select" ? null : ( // of a newer service
          <Select
            key={control.id}
            inline
            label={control.label}
            value={typeof control.value === "string" ? control.value : ""}
            disabled={busy}
            onChange={(event) => set({ [control.id]: event.target.value })}
          >
            {typeof control.value !== "string" && <option value="">?</option>}
            {[
              ...new Set([...(control.options ?? []), ...(typeof control.value === "string" ? [control.value] : [])]),
            ].map((option) => (
              <option key={option}>{option}</option>
            ))}
          </Select>
        ),
      )}
    </div>
  );
});
