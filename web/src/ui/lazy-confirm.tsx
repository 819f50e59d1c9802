import { lazy } from "react";

/** The confirmation of an action, loaded when it is first asked for; draw it inside `Suspense`. */
export const Confirm = lazy(() => import("./dialog").then((module) => ({ default: module.Confirm })));
