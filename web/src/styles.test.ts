import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

const css: string = readFileSync(new URL("./styles.css", import.meta.url), "utf8");

/** The colour of a token, in the light scheme and in the dark one. */
function colours(token: string): [string, string] {
  const [, light, dark] = new RegExp(`--color-${token}: light-dark\\((#\\w{6}), (#\\w{6})\\)`).exec(css) ?? [];
  if (!light || !dark) throw new Error(`no colours of ${token}`);
  return [light, dark];
}

function luminance(colour: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const value = parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(colour: string, other: string): number {
  const [darker = 0, lighter = 0] = [luminance(colour), luminance(other)].sort((a, b) => a - b);
  return (lighter + 0.05) / (darker + 0.05);
}

const ON_CHANGES = ["text", "soft", "code-word", "code-string", "code-number", "code-name", "code-type"];

test.each(["good-soft", "bad-soft", "good-strong", "bad-strong", "sunken"])("code can be read on %s", (background) => {
  for (const scheme of [0, 1] as const) {
    for (const text of ON_CHANGES) {
      expect(
        contrast(colours(text)[scheme], colours(background)[scheme]),
        `${text}, scheme ${scheme}`,
      ).toBeGreaterThanOrEqual(4.5);
    }
  }
});
