"""From a message to a prompt: pictures for agents that take them, text for all."""

from acp.schema import ImageContentBlock, InitializeResponse, TextContentBlock

from outrider.contract.commands import ChatInput, ImagePart
from outrider.contract.errors import bad_request
from outrider.daemon.agents.acp.content import Block
from outrider.daemon.agents.acp.provider_file import AcpFile
from outrider.daemon.agents.guards import Guards


def prompt_of(
    message: ChatInput, agent: InitializeResponse | None, file: AcpFile
) -> tuple[list[Block], str]:
    """Return a message as the agent takes it, and as the chat shows it.

    Raises:
        ApiError: 400, there are only pictures, and the agent takes none.
    """
    able = None if agent is None else agent.agent_capabilities
    prompts = None if able is None else able.prompt_capabilities
    images = [part for part in message.parts if isinstance(part, ImagePart)]
    text, guards = message.as_text(), Guards(file.guard_before)
    if not images or prompts is None or not prompts.image:
        if not text.strip():
            raise bad_request(
                f"{file.display_name} takes no pictures: add text, or `textFallback`",
                "input",
            )
        return [TextContentBlock(type="text", text=guards.add(text))], text
    blocks: list[Block] = [
        ImageContentBlock(type="image", data=part.data, mime_type=part.mime_type)
        if isinstance(part, ImagePart)
        else TextContentBlock(type="text", text=guards.add(part.text))
        for part in message.parts
    ]
    shown = [
        f"[image: {part.mime_type}]" if isinstance(part, ImagePart) else part.text
        for part in message.parts
    ]
    return blocks, "\n".join(shown)
