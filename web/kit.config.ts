import { defineConfig, mergeConfig } from "vite";
import config from "./vite.config.ts";

const path = (relative: string) => new URL(relative, import.meta.url).pathname;

/** The kit alone, for `make screenshots`: it is no part of the dashboard's own build. */
export default mergeConfig(
  config,
  defineConfig({ build: { outDir: path("../.cache/kit"), rolldownOptions: { input: path("./kit.html") } } }),
);
