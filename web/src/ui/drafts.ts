import { BASE_PATH } from "@/api/prefetch";

/**
 * What has been typed but not sent, by session or dialog: it survives a reload and a new log-in to
 * the same user, and ends with a log-out.
 */
const PREFIX = `outrider:draft:${BASE_PATH}:`; // services below other base paths of this origin have their own

export function readDraft(name: string): string {
  try {
    return sessionStorage.getItem(PREFIX + name) ?? "";
  } catch {
    return "";
  }
}

export function keepDraft(name: string, text: string): void {
  try {
    if (text) sessionStorage.setItem(PREFIX + name, text);
    else sessionStorage.removeItem(PREFIX + name);
  } catch {
    // without storage, it is only lost by a reload
  }
}

/** Return what was typed into a dialog; `empty` if nothing was. */
export function readForm<T extends object>(name: string, empty: T): T {
  try {
    return { ...empty, ...(JSON.parse(readDraft(name)) as Partial<T>) };
  } catch {
    return empty;
  }
}

export const keepForm = (name: string, form: object): void => keepDraft(name, JSON.stringify(form));

/** The name below which the user is kept who has typed the rest. */
const USER = "user";

/** Forget what was typed, unless it was by this user: the tab may have a new one without a log-out. */
export function keepDraftsOf(user: string): void {
  if (readDraft(USER) !== user) clearDrafts();
  keepDraft(USER, user);
}

/** Forget all that was typed, for the next user of this browser. */
export function clearDrafts(): void {
  try {
    for (const key of Object.keys(sessionStorage)) if (key.startsWith(PREFIX)) sessionStorage.removeItem(key);
  } catch {
    // there is nothing without storage
  }
}
