/** What has been typed but not sent, by session: it survives a reload and a new log-in. */
const key = (targetId: string) => `outrider:draft:${targetId}`;

export function readDraft(targetId: string): string {
  try {
    return sessionStorage.getItem(key(targetId)) ?? "";
  } catch {
    return "";
  }
}

export function keepDraft(targetId: string, text: string): void {
  try {
    if (text) sessionStorage.setItem(key(targetId), text);
    else sessionStorage.removeItem(key(targetId));
  } catch {
    // without storage, it is only lost by a reload
  }
}
