import { twMerge } from "tailwind-merge";

/** Join the class names that apply; of two that contradict each other, the later one stays. */
export const cn = twMerge;
