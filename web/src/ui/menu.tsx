import { lazy, Suspense, useState } from "react";
import { buttonClass } from "./button";
import type { MenuProps } from "./menu-popup";

const MenuPopup = lazy(() => import("./menu-popup"));

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
