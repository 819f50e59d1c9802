/** The key that is held for shortcuts on this system. */
export const SWITCHER_KEY = /Mac|iPhone|iPad/.test(navigator.userAgent) ? "⌘K" : "Ctrl K";
