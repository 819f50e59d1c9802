import query from "@tanstack/eslint-plugin-query";
import importX from "eslint-plugin-import-x";
import jsxA11y from "eslint-plugin-jsx-a11y";
import reactHooks from "eslint-plugin-react-hooks";
import { defineConfig } from "eslint/config";
import { createTypeScriptImportResolver } from "eslint-import-resolver-typescript";
import tseslint from "typescript-eslint";

export default defineConfig(
  { ignores: ["node_modules"] },
  { linterOptions: { reportUnusedDisableDirectives: "error" } },
  {
    files: ["src/**/*.{ts,tsx}", "*.config.ts"],
    extends: [
      tseslint.configs.recommendedTypeChecked,
      reactHooks.configs.flat.recommended,
      jsxA11y.flatConfigs.recommended,
      query.configs["flat/recommended"],
      importX.flatConfigs.typescript,
    ],
    plugins: { "import-x": importX },
    languageOptions: { parserOptions: { projectService: true } },
    settings: { "import-x/resolver-next": [createTypeScriptImportResolver({ project: "tsconfig.json" })] },
    rules: {
      // A module of a circle cannot be understood or tested without the others.
      "import-x/no-cycle": ["error", { ignoreExternal: true }],
      "import-x/order": [
        "error",
        {
          groups: ["builtin", "external", "internal", "parent", "sibling"],
          pathGroups: [{ pattern: "@/**", group: "internal" }],
          alphabetize: { order: "asc", orderImportKind: "asc", caseInsensitive: true },
          "newlines-between": "never",
        },
      ],
      "import-x/no-duplicates": "error",
      // The router's redirects are thrown.
      "@typescript-eslint/only-throw-error": [
        "error",
        { allow: [{ from: "package", package: "@tanstack/router-core", name: "Redirect" }] },
      ],
      "@typescript-eslint/no-unused-vars": ["error", { ignoreRestSiblings: true }],
      // It concerns React's compiler, which the build does not use.
      "react-hooks/incompatible-library": "off",
      // Pages and dialogs that are one form begin in its first field.
      "jsx-a11y/no-autofocus": ["error", { ignoreNonDOM: true }],
      // What scrolls must be reachable by keys (axe: scrollable-region-focusable).
      "jsx-a11y/no-noninteractive-tabindex": ["error", { tags: ["pre", "div"], roles: ["tabpanel"] }],
      // Cards have keys of their own, and lists watch the pointer leave; neither can be clicked.
      "jsx-a11y/no-noninteractive-element-interactions": [
        "error",
        { handlers: ["onClick", "onMouseDown", "onMouseUp"] },
      ],
      "jsx-a11y/no-static-element-interactions": ["error", { handlers: ["onClick", "onMouseDown", "onMouseUp"] }],
    },
  },
  // Fakes of functions that are asynchronous, and results of mocks, which have no types.
  {
    files: ["src/**/*.test.{ts,tsx}"],
    rules: { "@typescript-eslint/require-await": "off", "@typescript-eslint/no-unsafe-assignment": "off" },
  },
);
