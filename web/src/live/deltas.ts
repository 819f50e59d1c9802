/**
 * The messages that agents are writing at this moment, by session.
 *
 * They are kept outside the query cache and change listeners at most once a frame of the screen:
 * an agent can send a hundred pieces a second.
 */
interface Delta {
  targetId: string;
  messageId: string;
  revision: number;
  op: "append" | "replace";
  text: string;
}

export interface Draft {
  messageId: string;
  text: string;
}

interface Entry extends Draft {
  revision: number;
  broken: boolean;
}

const FIRST_REVISION = 0;
const NONE: readonly Draft[] = [];

class Deltas {
  private readonly writing = new Map<string, Map<string, Entry>>();
  private readonly shown = new Map<string, readonly Draft[]>();
  private readonly listeners = new Set<() => void>();
  private scheduled = false;

  /**
   * Take a piece. If one before it is missing, return false once: then the chat has to be read, and
   * the message is shown as the chat has it until it is complete.
   */
  take(delta: Delta): boolean {
    const drafts = this.writing.get(delta.targetId) ?? new Map<string, Entry>();
    this.writing.set(delta.targetId, drafts);
    const { messageId, revision } = delta;
    const entry = drafts.get(messageId);
    if (delta.op === "replace") {
      drafts.set(messageId, { messageId, revision, text: delta.text, broken: false });
    } else if (entry ? entry.broken || revision <= entry.revision : false) {
      return true;
    } else if (delta.op !== "append") {
      drafts.set(messageId, { messageId, revision, text: "", broken: true }); // of a newer service
      this.changed(delta.targetId);
      return false;
    } else if (entry ? revision === entry.revision + 1 : revision <= FIRST_REVISION) {
      drafts.set(messageId, { messageId, revision, text: (entry?.text ?? "") + delta.text, broken: false });
    } else {
      drafts.set(messageId, { messageId, revision, text: "", broken: true });
      this.changed(delta.targetId);
      return false;
    }
    this.changed(delta.targetId);
    return true;
  }

  /** The message is complete: the chat has it. */
  complete(targetId: string, messageId: string): void {
    if (this.writing.get(targetId)?.delete(messageId)) this.changed(targetId);
  }

  /** The turn is over. */
  end(targetId: string): void {
    if (this.writing.delete(targetId)) this.changed(targetId);
  }

  clear(): void {
    const targets = [...this.writing.keys()];
    this.writing.clear();
    targets.forEach((target) => this.changed(target));
  }

  read(targetId: string): readonly Draft[] {
    return this.shown.get(targetId) ?? NONE;
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  private readonly dirty = new Set<string>();

  private changed(targetId: string): void {
    this.dirty.add(targetId);
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      for (const target of this.dirty) {
        const drafts = [...(this.writing.get(target)?.values() ?? [])].filter((draft) => !draft.broken);
        if (drafts.length > 0) this.shown.set(target, drafts);
        else this.shown.delete(target);
      }
      this.dirty.clear();
      this.listeners.forEach((notify) => notify());
    });
  }
}

export const deltas = new Deltas();
