import { useRouter } from "@tanstack/react-router";
import { Link } from "@tanstack/react-router";
import { Compass, TriangleAlert } from "lucide-react";
import { explain } from "@/api/client";
import { t } from "@/text";
import { Button, buttonClass } from "@/ui/button";
import { Empty } from "@/ui/feedback";
import { useTitle } from "@/ui/page";

export function NotFoundPage() {
  useTitle(t("app.notFound"));
  return (
    <main>
      <Empty heading="h1" icon={<Compass />} title={t("app.notFound")} hint={t("app.notFoundHint")}>
        <Link to="/" className={buttonClass("primary")}>
          {t("app.home")}
        </Link>
      </Empty>
    </main>
  );
}

export function FailedPage({ error }: { error: unknown }) {
  const router = useRouter();
  useTitle(t("app.failed"));
  return (
    <main>
      <div role="alert">
        <Empty heading="h1" icon={<TriangleAlert />} title={t("app.failed")} hint={explain(error)}>
          <Button look="primary" onClick={() => void router.invalidate()}>
            {t("app.reload")}
          </Button>
        </Empty>
      </div>
    </main>
  );
}
