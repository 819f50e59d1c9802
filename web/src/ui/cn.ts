export type ClassName = string | false | null | undefined;
/** Join the class names that apply. */
export const cn = (...names: ClassName[]) => names.filter(Boolean).join(" ");
