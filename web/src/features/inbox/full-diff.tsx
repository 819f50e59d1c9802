import type { FileDiff } from "@/api/client";
import { FileDiffs } from "@/ui/code/file-diffs";
import { Dialog } from "@/ui/dialog";

interface FullDiffProps {
  title: string;
  diff: FileDiff[];
  onClose: () => void;
}

/** An edit in a window of its own. */
export default function FullDiff({ title, diff, onClose }: FullDiffProps) {
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title={title}
      className="sm:top-[4vh] sm:max-h-[92vh] sm:max-w-5xl"
    >
      <FileDiffs diffs={diff} />
    </Dialog>
  );
}
