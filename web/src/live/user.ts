import { BASE } from "@/api/prefetch";

/**
 * Tell the other tabs who is logged in. The browser has one login for all of them: `onOther` is called
 * in the tabs that still show what an earlier user saw.
 */
export function announceUser(user: string, onOther: () => void): () => void {
  const channel = new BroadcastChannel(`outrider-user:${BASE}`);
  channel.onmessage = ({ data }: MessageEvent<string>) => {
    if (data !== user) onOther();
  };
  channel.postMessage(user);
  return () => channel.close();
}
