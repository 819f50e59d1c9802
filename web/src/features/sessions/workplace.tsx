import { GitBranch } from "lucide-react";
import type { Session } from "@/api/client";
import { visible } from "@/text";
import { cn } from "@/ui/cn";
import { workplace } from "./places";

/** Where a session works, in a few words; its whole path on hover. */
export function Workplace({ session, className }: { session: Session; className?: string }) {
  const { name, branch } = workplace(session);
  if (!name && branch === undefined) return null;
  return (
    <span className={cn("truncate", className)} title={visible(session.workspace?.path ?? "")}>
      {visible(name)}
      {branch !== undefined && (
        <>
          <GitBranch className="mx-1 inline size-3 -translate-y-px" aria-hidden />
          {visible(branch)}
        </>
      )}
    </span>
  );
}
