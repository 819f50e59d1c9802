import { expect, test } from "vitest";
import { visible } from "./visible";

test.each([
  ["rm -rf \u202etxt.elif", "rm -rf ⟨U+202E⟩txt.elif"],
  ["a\u2066b\u2069c", "a⟨U+2066⟩b⟨U+2069⟩c"],
  ["l\u200bs\u00ad -l\ufeff", "l⟨U+200B⟩s⟨U+00AD⟩ -l⟨U+FEFF⟩"],
  ["ls\r\u001b[2K\u0008\u0000\u009b", "ls⟨U+000D⟩⟨U+001B⟩[2K⟨U+0008⟩⟨U+0000⟩⟨U+009B⟩"],
  ["rm a\u00a0b\u3000c\u2800", "rm a⟨U+00A0⟩b⟨U+3000⟩c⟨U+2800⟩"],
  ["a\u2028b\u2029", "a⟨U+2028⟩b⟨U+2029⟩"],
  ["a\u{e0041}\u{e000}", "a⟨U+E0041⟩⟨U+E000⟩"],
  ["\ud83d.\ufe0f\u3164", "⟨U+D83D⟩.⟨U+FE0F⟩⟨U+3164⟩"],
  ["a\u200db", "a⟨U+200D⟩b"],
  [" ", "⟨U+0020⟩"],
])("%j is shown as %j", (text, shown) => expect(visible(text)).toBe(shown));

test.each(["two lines\n\tand a tab", "déjà — “vu” 漢字 שלום", "👩‍💻 ❤️ 👩🏽‍🚀 ❤️‍🔥 1️⃣", "می‌خواهم क्‍ष"])(
  "%j stays as it is",
  (text) => expect(visible(text)).toBe(text),
);

test("a character is shown in the same way whatever stands beside it", () => {
  for (let code = 0; code < 0x300; code += 1) {
    const character = String.fromCharCode(code);
    expect(visible(`a${character}\u202e`)).toBe(`${visible(`a${character}`)}⟨U+202E⟩`);
  }
});
