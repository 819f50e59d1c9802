import { useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { machineState } from "@/features/machines/machine-state";
import { useFleet } from "@/features/sessions/fleet";
import { workplace } from "@/features/sessions/places";
import { t, visible } from "@/text";
import { cn } from "@/ui/cn";
import { Dialog } from "@/ui/dialog";
import { TextInput } from "@/ui/field";
import { StatusMark } from "@/ui/status";

interface Entry {
  key: string;
  group: string;
  label: string;
  hint: string;
  /** The state of what it leads to. */
  status?: string;
  go: () => void;
}

/** Go to a page, session or machine by typing a part of its name. */
export default function Switcher({ onClose }: { onClose: () => void }) {
  const navigate = useNavigate();
  const { places, machines } = useFleet();
  const [text, setText] = useState("");
  const [selected, setSelected] = useState(0);
  const page = (
    to: "/" | "/inbox" | "/machines" | "/history" | "/webhooks" | "/account",
    label: string,
    hint: string,
  ): Entry => ({
    ...{ key: to, group: t("switcher.pages"), label, hint },
    go: () => void navigate({ to }),
  });
  const entries: Entry[] = [
    page("/", t("nav.sessions"), "g s"),
    page("/inbox", t("nav.inbox"), "g i"),
    page("/machines", t("nav.machines"), "g m"),
    page("/history", t("nav.history"), "g h"),
    page("/webhooks", t("nav.webhooks"), ""),
    page("/account", t("nav.account"), ""),
    ...places.map(({ session, machine }) => {
      const { name, branch } = workplace(session);
      return {
        key: session.targetId,
        group: t("nav.sessions"),
        label: visible(session.title ?? session.type),
        hint: visible([name, branch, machine.nickname].filter(Boolean).join(" · ")),
        status: session.status,
        go: () => void navigate({ to: "/sessions/$targetId", params: { targetId: session.targetId } }),
      };
    }),
    ...machines.map((machine) => ({
      key: machine.id,
      group: t("nav.machines"),
      label: visible(machine.nickname),
      hint: "",
      status: machineState(machine),
      go: () => void navigate({ to: "/machines/$daemonId", params: { daemonId: machine.id } }),
    })),
  ];
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = entries
    .filter((entry) =>
      words.every((word) => `${entry.label} ${entry.hint} ${entry.status}`.toLowerCase().includes(word)),
    )
    .slice(0, 50);
  const groups = [...new Set(matching.map((entry) => entry.group))];
  const at = Math.min(selected, matching.length - 1);
  useEffect(() => void document.getElementById(`switcher-${at}`)?.scrollIntoView({ block: "nearest" }), [at]);
  const choose = (entry: Entry | undefined) => {
    if (!entry) return;
    onClose();
    entry.go();
  };
  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title={t("switcher.title")} wide>
      <TextInput
        role="combobox"
        aria-label={t("switcher.label")}
        aria-expanded
        aria-controls="switcher-list"
        aria-activedescendant={at >= 0 ? `switcher-${at}` : undefined}
        autoFocus
        placeholder={t("switcher.hint")}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setSelected(0);
        }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") setSelected(Math.min(at + 1, matching.length - 1));
          else if (event.key === "ArrowUp") setSelected(Math.max(at - 1, 0));
          else if (event.key === "Enter") choose(matching[at]);
          else return;
          event.preventDefault();
        }}
      />
      <div
        id="switcher-list"
        role="listbox"
        aria-label={t("switcher.title")}
        className="-mx-2 mt-2 max-h-[min(26rem,55dvh)] overflow-y-auto"
      >
        {groups.map((group) => (
          <div key={group} role="group" aria-label={group}>
            <p aria-hidden className="px-2 pt-2 pb-1 text-xs text-faint">
              {group}
            </p>
            {matching.map((entry, i) =>
              entry.group !== group ? null : (
                <button
                  key={entry.key}
                  type="button"
                  tabIndex={-1}
                  id={`switcher-${i}`}
                  role="option"
                  aria-selected={i === at}
                  onPointerMove={() => setSelected(i)}
                  onClick={() => choose(entry)}
                  className={cn(
                    "flex h-9 w-full items-center text-left gap-2 rounded-md px-2 text-sm pointer-coarse:h-11",
                    i === at && "bg-hover",
                  )}
                >
                  {entry.status && <StatusMark value={entry.status} />}
                  <span className="truncate">{entry.label}</span>
                  {entry.status && <span className="sr-only">{entry.status}</span>}
                  <span className="ml-auto max-w-1/2 shrink-0 truncate pl-2 text-xs text-faint">{entry.hint}</span>
                </button>
              ),
            )}
          </div>
        ))}
      </div>
      {matching.length === 0 && <p className="py-6 text-center text-sm text-soft">{t("switcher.none")}</p>}
    </Dialog>
  );
}
