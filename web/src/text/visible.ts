/** Text whose every character has a mark of its own: ASCII and the Latin letters of European languages. */
const COMMON = /^[\t\n -~\u00a1-\u00ac\u00ae-\u017f]*$/;

/** Return what matches the rest. Made when first needed: it is built from large tables of Unicode. */
function pattern(): RegExp {
  /**
   * Characters without a mark of their own: controls (all but tab and line feed), marks that change
   * the direction of text, fillers and joiners, spaces other than the plain one, halves of surrogate
   * pairs, and characters that only programs give a meaning.
   */
  const invisible =
    /[^\P{Cc}\t\n]|[^\P{Zs} ]|[\p{Default_Ignorable_Code_Point}\p{Cs}\p{Co}\p{Zl}\p{Zp}\u2800\ufff9-\ufffb]/u;
  /** Where joiners and variation selectors are part of what is seen: emoji, and scripts that join letters. */
  const shapes =
    /(?<=\p{Extended_Pictographic})\ufe0f|\ufe0f(?=\u20e3)|(?<=\p{Extended_Pictographic}\ufe0f?|\p{Emoji_Modifier})\u200d(?=\p{Extended_Pictographic})|(?<=[\u0600-\u08ff\u0900-\u0dff])[\u200c\u200d](?=[\u0600-\u08ff\u0900-\u0dff])/u;
  return new RegExp(`(${shapes.source})|${invisible.source}`, "gu");
}

let either: RegExp | undefined;

/**
 * Return a text of an agent or a machine with what is invisible in it made visible, such as
 * `⟨U+202E⟩`, so that a command, a path or a name cannot look like another one.
 *
 * For whatever a person decides by. Keys and what is sent to the service stay as they are.
 */
export function visible(text: string): string {
  if (/^ +$/.test(text)) return [...text].map(mark).join(""); // not to be without a name
  if (COMMON.test(text)) return text;
  either ??= pattern();
  return text.replace(either, (match, shape?: string) => shape ?? [...match].map(mark).join(""));
}

const mark = (character: string) =>
  `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
