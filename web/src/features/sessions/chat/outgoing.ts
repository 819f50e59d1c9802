/** Messages between the message box and the chat or the queue, where events show them. */

export interface Outgoing {
  key: string;
  text: string;
  /** The ids that the chat and the queue had when it was sent. */
  before: ReadonlySet<string>;
  /** The message's id, once the service has taken it. */
  id?: string;
}

/** A message that the chat or the queue shows. */
export interface Arrived {
  id: string;
  text: string;
}

/**
 * Return the messages that neither the chat nor the queue has shown yet; `outgoing` itself if none has
 * been. One that was shown is sent for good: it may be taken back again, by anybody. The event of a
 * message may come before the response that has its id: then a new message of the same text is it.
 */
export function notArrived(outgoing: readonly Outgoing[], arrived: readonly Arrived[]): readonly Outgoing[] {
  const taken = new Set(outgoing.flatMap(({ id }) => id ?? []));
  const byText = new Set<string>();
  const left = outgoing.filter((message) => {
    if (message.id !== undefined) return !arrived.some(({ id }) => id === message.id);
    const own = arrived.find(
      ({ id, text }) => !taken.has(id) && !message.before.has(id) && text.trim() === message.text.trim(),
    );
    if (own) {
      taken.add(own.id);
      byText.add(own.id);
    }
    return !own;
  });
  if (left.length === outgoing.length) return outgoing;
  // What has been taken for one message is not taken for another one of the same text later.
  return byText.size === 0
    ? left
    : left.map((message) => ({ ...message, before: new Set([...message.before, ...byText]) }));
}
