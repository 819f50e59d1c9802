import { lazy, Suspense, useState, type ReactNode } from "react";
import { buttonClass } from "./button";

const MenuPopup = lazy(() => import("./menu-popup"));

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

/** A button, named `label`, that opens a list of actions; what draws the list is loaded then. */
export function Menu(props: MenuProps) {
  const { label, trigger, disabled, className } = props;
  const [used, setUsed] = useState(false);
  const button = (
    <button
      type="button"
      className={className ?? buttonClass(trigger ? "quiet" : "plain", !!trigger)}
      aria-label={label}
      aria-haspopup="menu"
      aria-expanded={false}
      disabled={disabled}
      onClick={() => setUsed(true)}
    >
      {trigger ?? label}
    </button>
  );
  if (!used) return button;
  return (
    <Suspense fallback={button}>
      <MenuPopup {...props} />
    </Suspense>
  );
}
