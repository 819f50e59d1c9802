/** The languages that code is coloured in, and how names of files and code blocks say them. */
const LANGUAGES = [
  "bash",
  "c",
  "cpp",
  "csharp",
  "css",
  "diff",
  "dockerfile",
  "go",
  "ini",
  "java",
  "javascript",
  "json",
  "kotlin",
  "lua",
  "makefile",
  "markdown",
  "perl",
  "php",
  "python",
  "r",
  "ruby",
  "rust",
  "scala",
  "scss",
  "sql",
  "swift",
  "typescript",
  "xml",
  "yaml",
] as const;

export type Language = (typeof LANGUAGES)[number];

/** Other names of languages, and the ends of files' names. */
const NAMES: Record<string, Language> = {
  ...{
    sh: "bash",
    shell: "bash",
    zsh: "bash",
    console: "bash",
    bashrc: "bash",
    h: "c",
    cc: "cpp",
    cxx: "cpp",
    hpp: "cpp",
  },
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
  for (const candidate of [word, word.split(".").pop() ?? "", word.split(".", 1)[0] ?? ""]) {
    if (LANGUAGES.includes(candidate as Language)) return candidate as Language;
    if (Object.hasOwn(NAMES, candidate)) return NAMES[candidate];
  }
  return undefined;
}
