"""The built-in provider types.

A machine can add types in provider files of its own; it reports them in `availableProviders`.
"""

from typing import Final, Literal

Category = Literal["ide", "cli", "acp"]

BUILT_IN_TYPES: Final[dict[str, tuple[Category, str]]] = {
    "claude-code": ("cli", "Claude Code"),
    "codex": ("cli", "Codex"),
    "opencode": ("cli", "opencode"),
    "gemini-cli": ("cli", "Gemini CLI"),
    "aider": ("cli", "aider"),
    "claude-acp": ("acp", "Claude (ACP)"),
    "opencode-acp": ("acp", "opencode (ACP)"),
    "gemini-acp": ("acp", "Gemini (ACP)"),
    "codex-acp": ("acp", "Codex (ACP)"),
    "demo": ("acp", "Demo agent"),
    "jupyterlab": ("ide", "JupyterLab"),
    "code-server": ("ide", "code-server"),
    "vscode": ("ide", "Visual Studio Code"),
    "cursor": ("ide", "Cursor"),
    "windsurf": ("ide", "Windsurf"),
    "antigravity": ("ide", "Antigravity"),
    "kiro": ("ide", "Kiro"),
}
"""Type → (category, display name)."""
