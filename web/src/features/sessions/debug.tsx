import { useQuery } from "@tanstack/react-query";
import { api, explain } from "@/api/client";
import { keys } from "@/api/query-keys";
import { t } from "@/text";
import { CopyButton } from "@/ui/copy";
import { Alert, Skeleton } from "@/ui/feedback";

/** What the machine knows of a session, for the report of a fault. */
export default function Debug({ targetId }: { targetId: string }) {
  const debug = useQuery({
    queryKey: keys.debug(targetId),
    gcTime: 0,
    queryFn: ({ signal }) => api.get("/api/v1/shortcuts/{ideId}/chat/debug", { path: { ideId: targetId }, signal }),
  });
  if (debug.isPending) return <Skeleton rows={8} />;
  if (debug.error) return <Alert className="m-4">{explain(debug.error)}</Alert>;
  return (
    <div className="h-full overflow-y-auto p-4 sm:px-6">
      <div className="mb-3 flex flex-wrap items-center justify-between gap-3">
        <p className="text-sm text-soft">{t("debug.hint")}</p>
        <CopyButton text={debug.data.text} label={t("debug.copy")} />
      </div>
      <pre
        tabIndex={0}
        className="overflow-x-auto rounded-md border border-line bg-sunken p-3 font-mono text-xs whitespace-pre-wrap wrap-anywhere"
      >
        {debug.data.text}
      </pre>
    </div>
  );
}
