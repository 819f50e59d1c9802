/** What the package has: the client of the API, and its events. */
export * from "./client.js";
export * from "./events.js";
export type { components, operations, paths } from "./api.js";
