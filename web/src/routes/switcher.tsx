import { useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { useFleet } from "@/api/fleet";
import { t, visible } from "@/text";
import { cn } from "@/ui/cn";
import { Dialog } from "@/ui/dialog";
import { INPUT } from "@/ui/field";

interface Entry {
  key: string;
  label: string;
  hint: string;
  go: () => void;
}

/** Go to a page, session or machine by typing a part of its name. */
export default function Switcher({ onClose }: { onClose: () => void }) {
  const navigate = useNavigate();
  const { places, machines } = useFleet();
  const [text, setText] = useState("");
  const [selected, setSelected] = useState(0);
  const entries: Entry[] = [
    { key: "/", label: t("nav.sessions"), hint: "g s", go: () => void navigate({ to: "/" }) },
    { key: "/inbox", label: t("nav.inbox"), hint: "g i", go: () => void navigate({ to: "/inbox" }) },
    { key: "/machines", label: t("nav.machines"), hint: "g m", go: () => void navigate({ to: "/machines" }) },
    { key: "/history", label: t("nav.history"), hint: "g h", go: () => void navigate({ to: "/history" }) },
    { key: "/webhooks", label: t("nav.webhooks"), hint: "", go: () => void navigate({ to: "/webhooks" }) },
    { key: "/account", label: t("nav.account"), hint: "", go: () => void navigate({ to: "/account" }) },
    ...places.map(({ session, machine }) => ({
      key: session.targetId,
      label: visible(session.title ?? session.type),
      hint: visible([session.workspace?.name, machine.nickname].filter(Boolean).join(" · ")),
      go: () => void navigate({ to: "/sessions/$targetId", params: { targetId: session.targetId } }),
    })),
    ...machines.map((machine) => ({
      key: machine.id,
      label: visible(machine.nickname),
      hint: t("sessions.machine"),
      go: () => void navigate({ to: "/machines/$daemonId", params: { daemonId: machine.id } }),
    })),
  ];
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = entries
    .filter((entry) => words.every((word) => `${entry.label} ${entry.hint}`.toLowerCase().includes(word)))
    .slice(0, 50);
  const at = Math.min(selected, found.length - 1);
  useEffect(() => void document.getElementById(`switcher-${at}`)?.scrollIntoView({ block: "nearest" }), [at]);
  const choose = (entry: Entry | undefined) => {
    if (!entry) return;
    onClose();
    entry.go();
  };
  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title={t("switcher.title")} wide>
      <input
        role="combobox"
        aria-label={t("switcher.label")}
        aria-expanded
        aria-controls="switcher-list"
        aria-activedescendant={at >= 0 ? `switcher-${at}` : undefined}
        autoFocus
        className={INPUT}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setSelected(0);
        }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") setSelected(Math.min(at + 1, found.length - 1));
          else if (event.key === "ArrowUp") setSelected(Math.max(at - 1, 0));
          else if (event.key === "Enter") choose(found[at]);
          else return;
          event.preventDefault();
        }}
      />
      <ul id="switcher-list" role="listbox" aria-label={t("switcher.title")} className="mt-2 -mx-2">
        {found.map((entry, i) => (
          <li
            key={entry.key}
            id={`switcher-${i}`}
            role="option"
            aria-selected={i === at}
            onPointerMove={() => setSelected(i)}
            onClick={() => choose(entry)}
            // The margin keeps the field above the first one in view.
            className={cn("flex h-9 scroll-mt-12 cursor-pointer items-center justify-between gap-4 rounded-md px-2 text-sm", i === at && "bg-hover")}
          >
            <span className="truncate">{entry.label}</span>
            <span className="shrink-0 truncate text-xs text-faint">{entry.hint}</span>
          </li>
        ))}
      </ul>
      {found.length === 0 && <p className="py-6 text-center text-sm text-soft">{t("switcher.none")}</p>}
    </Dialog>
  );
}
