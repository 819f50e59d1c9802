import { useRouter } from "@tanstack/react-router";
import { Link } from "@tanstack/react-router";
import { Compass, TriangleAlert } from "lucide-react";
import { explain } from "@/api/client";
import { t } from "@/text";
import { Button, buttonClass } from "@/ui/button";
import { Empty } from "@/ui/feedback";

export function NotFoundPage() {
  return (
    <Empty icon={<Compass />} title={t("app.notFound")} hint={t("app.notFoundHint")}>
      <Link to="/" className={buttonClass("primary")}>
        {t("app.home")}
      </Link>
    </Empty>
  );
}

export function FailedPage({ error }: { error: unknown }) {
  const router = useRouter();
  return (
    <div role="alert">
      <Empty icon={<TriangleAlert />} title={t("app.failed")} hint={explain(error)}>
        <Button look="primary" onClick={() => void router.invalidate()}>
          {t("app.reload")}
        </Button>
      </Empty>
    </div>
  );
}
