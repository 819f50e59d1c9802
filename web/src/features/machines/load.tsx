import { TriangleAlert } from "lucide-react";
import type { DaemonStatus } from "@/api/client";
import { t } from "@/text";

/** The load of the last minute and the processors that it is for, with a mark if they are too few. */
export function Load({ system }: { system: DaemonStatus["machine"] & object }) {
  const [load = 0] = system.loadavg;
  const text = t("machines.loadOf", load.toFixed(2), system.cpus);
  if (load <= system.cpus) return text;
  return (
    <span className="text-waiting">
      <TriangleAlert className="mr-1 inline size-3.5 align-text-bottom" aria-hidden />
      {text}, {t("machines.overloaded")}
    </span>
  );
}
