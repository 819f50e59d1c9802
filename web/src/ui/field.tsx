import { Search } from "lucide-react";
import { useId, type ComponentProps, type InputHTMLAttributes, type Ref, type SelectHTMLAttributes } from "react";
import { t } from "@/text";
import { cn } from "./cn";

const LOOK = "min-w-0 rounded-md border border-line-strong bg-ground text-text hover:border-faint";
const INPUT = `${LOOK} h-8 w-full px-2.5 text-base pointer-coarse:h-10`;

export const TextInput = ({ className, ...rest }: ComponentProps<"input">) => (
  <input className={cn(INPUT, className)} {...rest} />
);

interface FieldProps extends InputHTMLAttributes<HTMLInputElement> {
  label: string;
  hint?: string | undefined;
  ref?: Ref<HTMLInputElement>;
}

export function Field({ label, hint, className, ...rest }: FieldProps) {
  const id = useId();
  return (
    <div className={className}>
      <label htmlFor={id} className="mb-1 block text-sm font-medium">
        {label}
      </label>
      <TextInput id={id} aria-describedby={hint ? `${id}-hint` : undefined} {...rest} />
      {hint && (
        <p id={`${id}-hint`} className="mt-1 text-xs text-faint">
          {hint}
        </p>
      )}
    </div>
  );
}

/** The field of the user's password, which browsers and password managers fill in. */
export const PasswordField = (props: Omit<FieldProps, "label" | "type">) => (
  <Field label={t("login.password")} type="password" autoComplete="current-password" required {...props} />
);

interface SelectProps extends SelectHTMLAttributes<HTMLSelectElement> {
  label: string;
  /** Show the label before the field, in one line with it. */
  inline?: boolean;
  hint?: string | undefined;
}

/** The browser's own select: it has the right keys on a desk, and the right list on a phone. */
export function Select({ label, inline, hint, className, children, ...rest }: SelectProps) {
  const id = useId();
  return (
    <div className={cn(inline && "flex items-center gap-1.5", className)}>
      <label htmlFor={id} className={inline ? "text-sm text-soft" : "mb-1 block text-sm font-medium"}>
        {label}
      </label>
      <select
        id={id}
        className={cn(
          inline ? `${LOOK} h-7 max-w-40 pr-0.5 pl-1.5 text-sm pointer-coarse:h-9` : INPUT,
          "cursor-pointer",
        )}
        {...rest}
      >
        {children}
      </select>
      {hint && <p className="mt-1 text-xs text-faint">{hint}</p>}
    </div>
  );
}

interface CheckProps {
  label: string;
  checked: boolean;
  mono?: boolean;
  onChange: (on: boolean) => void;
}

export const Check = ({ label, checked, mono, onChange }: CheckProps) => (
  <label className="flex min-h-7 cursor-pointer items-center gap-2 text-sm pointer-coarse:min-h-10">
    <input
      type="checkbox"
      className="size-4 shrink-0 accent-accent-fill"
      checked={checked}
      onChange={(event) => onChange(event.target.checked)}
    />
    <span className={cn("wrap-anywhere", mono && "font-mono text-xs")}>{label}</span>
  </label>
);

interface SearchProps extends Omit<InputHTMLAttributes<HTMLInputElement>, "onChange"> {
  label: string;
  onChange: (text: string) => void;
}

/** The text filter of a list: `/` gives it the focus, Escape empties it. */
export function SearchBox({ label, onChange, className, ...rest }: SearchProps) {
  return (
    <div className={cn("relative", className)}>
      <Search className="pointer-events-none absolute top-1/2 left-2 size-4 -translate-y-1/2 text-faint" aria-hidden />
      <TextInput
        type="search"
        aria-label={label}
        data-list-filter
        className="pl-8 text-sm [&::-webkit-search-cancel-button]:hidden"
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          if (event.currentTarget.value === "") event.currentTarget.blur();
          else onChange("");
        }}
        {...rest}
      />
    </div>
  );
}
