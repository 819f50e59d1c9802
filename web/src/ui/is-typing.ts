/** Whether keys belong to what has the focus: a field, a terminal, an open dialog or menu. */
export function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return (
    target.matches("input, textarea, select, [contenteditable]") ||
    target.closest('[role="dialog"], [role="alertdialog"], [role="menu"], .xterm') !== null ||
    document.querySelector('[role="dialog"], [role="alertdialog"], [role="menu"]') !== null
  );
}
