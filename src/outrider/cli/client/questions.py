"""An agent's question as the commands show it, and the option that a person chooses."""

from outrider.cli.client.output import UsageError
from outrider.contract.commands import Verdict
from outrider.contract.resources import ActionOption, PendingAction


def question_text(action: PendingAction) -> str:
    """Return a question with its options, numbered."""
    options = (f"  {number}  {option.label}" for number, option in enumerate(action.options, 1))
    return "\n".join([action.message, *options])


def question_line(action: PendingAction) -> str:
    """Return a question with its options in one line, for a table."""
    options = "; ".join(
        f"{number} {option.label}" for number, option in enumerate(action.options, 1)
    )
    return f"{' '.join(action.message.split())} ({options})"


def chosen_option(action: PendingAction, verdict: Verdict, word: str | None) -> ActionOption | None:
    """Return the option that a person means.

    Args:
        word: the id, the number or the label of an option. Without it, the only option that means
            the verdict once, or None to leave it to the agent.

    Raises:
        UsageError: no option is meant, or several could be.
    """
    if word is None:
        fitting = [option for option in action.options if option.kind == _ONCE[verdict]]
        if len(fitting) > 1:
            text = "The agent offers several answers: choose one with --option\n"
            raise UsageError(text + question_text(action))
        return fitting[0] if fitting else None
    for option in action.options:
        if option.id == word:
            return option
    for number, option in enumerate(action.options, 1):
        if word == str(number) or word.casefold() == option.label.casefold():
            return option
    raise UsageError(f"{word!r} is none of the options:\n{question_text(action)}")


_ONCE = {"approve": "allow_once", "reject": "reject_once"}
