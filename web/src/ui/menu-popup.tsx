import { Menu as Base } from "@base-ui/react/menu";
import type { ReactNode } from "react";
import { buttonClass } from "./button";

interface Item {
  label: string;
  icon?: ReactNode;
  onSelect: () => void;
}

export interface MenuProps {
  label: string;
  trigger?: ReactNode;
  items: Item[];
  disabled?: boolean;
  /** The look of the button, in place of that of other buttons. */
  className?: string;
}

/** The open menu with its button. */
export default function MenuPopup({ label, trigger, items, disabled, className }: MenuProps) {
  return (
    <Base.Root defaultOpen>
      <Base.Trigger
        className={className ?? buttonClass(trigger ? "quiet" : "plain", !!trigger)}
        aria-label={label}
        disabled={disabled}
      >
        {trigger ?? label}
      </Base.Trigger>
      <Base.Portal>
        <Base.Positioner sideOffset={4} align="end" className="z-50">
          <Base.Popup className="max-w-[min(24rem,90vw)] min-w-40 rounded-lg border border-line bg-raised p-1 shadow-float outline-none">
            {items.map((item) => (
              <Base.Item
                key={item.label}
                onClick={item.onSelect}
                className="flex cursor-pointer items-center gap-2 rounded-md px-2.5 py-1.5 text-sm wrap-anywhere outline-none data-highlighted:bg-hover pointer-coarse:py-2.5"
              >
                {item.icon}
                {item.label}
              </Base.Item>
            ))}
          </Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  );
}
