import { t, visible } from "@/text";
import { cn } from "@/ui/cn";
import { RowLink } from "@/ui/row-link";
import { Status } from "@/ui/status";
import { Age } from "@/ui/time";
import type { Place } from "./places";
import { Workplace } from "./workplace";

/** A session in a list: its link, where it is, and its status. On the page of its machine, that is not named. */
export function SessionRow({ place: { session, machine }, here = false }: { place: Place; here?: boolean }) {
  const offline = machine.connected === false;
  const error = session.status === "error" ? session.error : null;
  return (
    <li className="relative flex items-center gap-3 border-b border-line px-4 py-2 hover:bg-hover has-focus-visible:bg-hover sm:px-6 lg:h-11 lg:py-0">
      <Status
        value={session.status}
        className={cn("max-lg:order-last lg:w-36", offline && "text-faint [&_svg]:text-faint")}
      />
      <div className="flex min-w-0 grow flex-col gap-x-3 lg:flex-row lg:items-baseline">
        <RowLink
          to="/sessions/$targetId"
          params={{ targetId: session.targetId }}
          className={cn("font-medium lg:min-w-2/5", offline && "text-soft")}
        >
          {visible(session.title ?? session.type)}
        </RowLink>
        <span className={cn("truncate text-sm text-faint lg:shrink-4", error ? "max-sm:hidden" : "max-lg:hidden")}>
          {session.title && !error?.startsWith(session.name) && <span className="max-lg:hidden">{session.name}</span>}
          {error && <span className="text-bad"> {visible(error)}</span>}
        </span>
        <span className="flex min-w-0 gap-x-3 text-sm text-faint lg:ml-auto lg:min-w-24 lg:shrink-2">
          {session.title && <span className="shrink-0 lg:hidden">{session.name}</span>}
          <Workplace session={session} className="lg:max-w-56" />
          {!here && (
            <span className="truncate lg:max-w-48">
              {visible(machine.nickname)}
              {offline && ` (${t("machines.offline")})`}
            </span>
          )}
          <Age
            at={session.lastActivityAt}
            className="shrink-0 whitespace-nowrap tabular-nums lg:min-w-10 lg:text-right"
          />
        </span>
      </div>
    </li>
  );
}
