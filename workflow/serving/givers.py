"""Who gives log-probabilities, for the message where an answer has none. The table of
docs/extending.md says the same at more length."""

from workflow.serving.address import Address

PAGE = "docs/extending.md lists who gives them"
# by a part of host and port, what is known of the service (2026-11)
GIVERS = {
    "api.openai.com": "OpenAI gives them for gpt-4o and gpt-4.1, not for its reasoning models",
    "api.anthropic.com": "Anthropic gives none",
    "groq.com": "Groq gives none",
    "googleapis.com": "Gemini gives them in another form alone",
    "together.": "Together gives them in another form (`logprobs` is a number)",
    "openrouter.ai": "OpenRouter gives them where the provider behind it does: write "
    "`request: {provider: {require_parameters: true}}`",
    ":11434": "Ollama gives them since 0.12.11",
    ":1234": "LM Studio's chat gives none",
}


def explain_missing(address: Address) -> str:
    """Return why a server's answers have no log-probabilities, as far as its address tells.

    Examples
    --------
    >>> from workflow.serving.address import parse_address
    >>> explain_missing(parse_address("https://api.groq.com/openai/v1"))
    'Groq gives none; docs/extending.md lists who gives them'
    """
    place = address.base.split("/")[2]
    for part, known in GIVERS.items():
        if part in place:
            return f"{known}; {PAGE}"
    return f"start the server so that it gives `logprobs`, or take another: {PAGE}"
