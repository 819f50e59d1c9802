import { useRouter, Link } from "@tanstack/react-router";
import { Compass, TriangleAlert } from "lucide-react";
import { ApiError, explain, UnreachableError } from "@/api/client";
import { t } from "@/text";
import { Button, buttonClass } from "@/ui/button";
import { Empty } from "@/ui/feedback";
import { useTitle } from "@/ui/page";

export function NotFoundPage() {
  useTitle(t("app.notFound"));
  return (
    <Empty heading="h1" icon={<Compass />} title={t("app.notFound")} hint={t("app.notFoundHint")}>
      <Link to="/" className={buttonClass("primary")}>
        {t("app.home")}
      </Link>
    </Empty>
  );
}

export function FailedPage({ error }: { error: unknown }) {
  const router = useRouter();
  useTitle(t("app.failed"));
  // What is not a response of the service may be a script that could not be loaded: React keeps that
  // failure, and after an upgrade the script has another name.
  const answered = error instanceof ApiError || error instanceof UnreachableError;
  return (
    <main>
      <div role="alert">
        <Empty heading="h1" icon={<TriangleAlert />} title={t("app.failed")} hint={explain(error)}>
          <Button look="primary" onClick={() => (answered ? void router.invalidate() : location.reload())}>
            {t("app.reload")}
          </Button>
        </Empty>
      </div>
    </main>
  );
}
