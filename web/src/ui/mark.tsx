export function Mark({ className }: { className?: string }) {
  return (
    <svg viewBox="0 0 32 32" className={className} aria-hidden>
      <rect width="32" height="32" rx="8" className="fill-accent-fill" />
      <path d="M8 20.5 16 8l8 12.5-8-4z" fill="#fff" />
    </svg>
  );
}
