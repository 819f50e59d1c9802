/** Where sessions are, and in which order they are shown. */
import type { Daemon, Session } from "@/api/client";
import { machineOf } from "@/api/target-id";

/** A session, and the machine that it is on. */
export interface Place {
  session: Session;
  machine: Daemon;
}

const ORDER = { waiting_approval: 0, generating: 1, error: 2, idle: 3 };

/** The rank of a session whose machine is offline: it is shown as it was last, and nobody can answer it. */
const OFFLINE = 5;

const rank = ({ session, machine }: Place) => (machine.connected === false ? OFFLINE : (ORDER[session.status] ?? 4));

/** Those that wait for approval first, then by status, the most recently active first; offline ones last. */
export function bySessionUrgency(a: Place, b: Place): number {
  return rank(a) - rank(b) || b.session.lastActivityAt - a.session.lastActivityAt;
}

/** The folder that worktrees are made in, beside their repository, ends so. */
const WORKTREES = ".worktrees";

/** Return the path of the directory that a session was launched for: of a worktree, that of its repository. */
export function repositoryPath({ workspace, worktree }: Pick<Session, "workspace" | "worktree">): string | undefined {
  if (!worktree) return workspace?.path;
  const folder = worktree.path.slice(0, worktree.path.lastIndexOf("/"));
  return folder.endsWith(WORKTREES) ? folder.slice(0, -WORKTREES.length) : undefined;
}

/** How many directories **Launch** offers. */
const MOST_RECENT = 4;

/** Return the directories of a machine in which sessions were active last; for a worktree, its repository. */
export function recentDirectories(sessions: readonly Session[], daemonId: string): string[] {
  const here = sessions.filter((session) => machineOf(session.targetId) === daemonId);
  here.sort((a, b) => b.lastActivityAt - a.lastActivityAt);
  const paths = here.flatMap((session) => repositoryPath(session) ?? []);
  return [...new Set(paths)].slice(0, MOST_RECENT);
}

/** Return in a few words where a session works: its directory; of a worktree, the repository and branch. */
export function workplace(session: Pick<Session, "workspace" | "worktree">): {
  name: string;
  branch: string | undefined;
} {
  const { workspace, worktree } = session;
  const path = worktree && repositoryPath(session);
  const name = path ? path.slice(path.lastIndexOf("/") + 1) : (workspace?.name ?? "");
  return { name, branch: worktree?.branch };
}

/** Return each session with its machine, the most urgent first. Those of a revoked machine are left out. */
export function placesOf(sessions: readonly Session[], machines: readonly Daemon[]): Place[] {
  const byId = new Map(machines.map((machine) => [machine.id, machine]));
  return sessions
    .flatMap((session): Place[] => {
      const machine = byId.get(machineOf(session.targetId));
      return machine ? [{ session, machine }] : [];
    })
    .sort(bySessionUrgency);
}

/** Whether each word of the filter is in the session's title, type, directory, branch or machine. */
export function matches({ session, machine }: Place, text: string): boolean {
  const { title, type, name, workspace, worktree } = session;
  const all = [title, type, name, workspace?.path, worktree?.branch, machine.nickname, machine.hostname];
  const searched = all.filter(Boolean).join("\n").toLowerCase();
  return text
    .toLowerCase()
    .split(/\s+/)
    .every((word) => searched.includes(word));
}
