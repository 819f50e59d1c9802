/** A frame of a server-sent event stream. */
export interface Frame {
  id: string | undefined;
  event: string;
  data: string;
}

/**
 * Split the text of a stream into frames.
 *
 * @returns a function that takes the next piece of text, which may end anywhere, and returns the
 *   frames that it completes.
 */
export function frameParser(): (piece: string) => Frame[] {
  let rest = "";
  let frame = empty();
  return (piece) => {
    const frames: Frame[] = [];
    rest += piece;
    // A line ends with \r\n, \n or \r; a \r at the very end may be the first half of \r\n.
    for (;;) {
      const match = /\r\n|\n|\r(?!$)/.exec(rest);
      if (!match) return frames;
      const line = rest.slice(0, match.index);
      rest = rest.slice(match.index + match[0].length);
      if (line === "") {
        if (frame.data.length > 0) frames.push({ id: frame.id, event: frame.event, data: frame.data.join("\n") });
        frame = empty();
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue;
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") frame.event = value;
      else if (field === "data") frame.data.push(value);
      else if (field === "id") frame.id = value;
    }
  };
}

const empty = () => ({ id: undefined as string | undefined, event: "message", data: [] as string[] });
