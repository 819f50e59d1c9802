/** The languages that code is coloured in, each loaded when it is first needed. */
import type { LanguageFn } from "highlight.js";

type Grammar = () => Promise<{ default: LanguageFn }>;

export const GRAMMARS = {
  bash: () => import("highlight.js/lib/languages/bash"),
  c: () => import("highlight.js/lib/languages/c"),
  cpp: () => import("highlight.js/lib/languages/cpp"),
  csharp: () => import("highlight.js/lib/languages/csharp"),
  css: () => import("highlight.js/lib/languages/css"),
  diff: () => import("highlight.js/lib/languages/diff"),
  dockerfile: () => import("highlight.js/lib/languages/dockerfile"),
  go: () => import("highlight.js/lib/languages/go"),
  ini: () => import("highlight.js/lib/languages/ini"),
  java: () => import("highlight.js/lib/languages/java"),
  javascript: () => import("highlight.js/lib/languages/javascript"),
  json: () => import("highlight.js/lib/languages/json"),
  kotlin: () => import("highlight.js/lib/languages/kotlin"),
  lua: () => import("highlight.js/lib/languages/lua"),
  makefile: () => import("highlight.js/lib/languages/makefile"),
  markdown: () => import("highlight.js/lib/languages/markdown"),
  perl: () => import("highlight.js/lib/languages/perl"),
  php: () => import("highlight.js/lib/languages/php"),
  python: () => import("highlight.js/lib/languages/python"),
  r: () => import("highlight.js/lib/languages/r"),
  ruby: () => import("highlight.js/lib/languages/ruby"),
  rust: () => import("highlight.js/lib/languages/rust"),
  scala: () => import("highlight.js/lib/languages/scala"),
  scss: () => import("highlight.js/lib/languages/scss"),
  sql: () => import("highlight.js/lib/languages/sql"),
  swift: () => import("highlight.js/lib/languages/swift"),
  typescript: () => import("highlight.js/lib/languages/typescript"),
  xml: () => import("highlight.js/lib/languages/xml"),
  yaml: () => import("highlight.js/lib/languages/yaml"),
} satisfies Record<string, Grammar>;

export type Language = keyof typeof GRAMMARS;

/** Other names of languages, and the ends of files' names. */
const NAMES: Record<string, Language> = {
  ...{ sh: "bash", shell: "bash", zsh: "bash", console: "bash", bashrc: "bash", h: "c", cc: "cpp", cxx: "cpp", hpp: "cpp" },
  ...{ "c++": "cpp", cs: "csharp", "c#": "csharp", patch: "diff", docker: "dockerfile", containerfile: "dockerfile" },
  ...{ golang: "go", toml: "ini", cfg: "ini", conf: "ini", properties: "ini", env: "ini", editorconfig: "ini" },
  ...{ js: "javascript", jsx: "javascript", mjs: "javascript", cjs: "javascript", ts: "typescript", tsx: "typescript" },
  ...{ mts: "typescript", cts: "typescript", json5: "json", jsonc: "json", jsonl: "json", kt: "kotlin", kts: "kotlin" },
  ...{ make: "makefile", mk: "makefile", md: "markdown", mdx: "markdown", pl: "perl", pm: "perl", py: "python" },
  ...{ pyi: "python", python3: "python", rb: "ruby", gemfile: "ruby", rakefile: "ruby", rs: "rust", sbt: "scala" },
  ...{ sass: "scss", less: "scss", html: "xml", htm: "xml", svg: "xml", vue: "xml", svelte: "xml", yml: "yaml" },
};

/** Return the language that a code block or a file's name says, if it is known. */
export function languageOf(name: string | undefined): Language | undefined {
  const word = name?.trim().split(/\s/, 1)[0]?.split("/").pop()?.toLowerCase() ?? "";
  for (const one of [word, word.split(".").pop() ?? "", word.split(".", 1)[0] ?? ""]) {
    if (Object.hasOwn(GRAMMARS, one)) return one as Language;
    if (Object.hasOwn(NAMES, one)) return NAMES[one];
  }
  return undefined;
}
