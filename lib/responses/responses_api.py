"""Objects of OpenAI's Responses API in the form of a chat completion, which the rest reads.

Log-probabilities are in it if the request had `include=["message.output_text.logprobs"]`.
"""

from typing import Any

Fields = dict[str, Any]  # of a JSON object
FINISH_REASONS = {  # by status and why it is incomplete
    "completed": "stop",
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}


def as_chat_completion(body: Any) -> Any:
    """Return an object of the Responses API as a chat completion; anything else as it is.

    Examples
    --------
    >>> part = {"type": "output_text", "text": "#### 7", "logprobs": []}
    >>> message = {"type": "message", "content": [part]}
    >>> as_chat_completion({"status": "completed", "output": [message]})["choices"][0]["message"]
    {'content': '#### 7', 'reasoning_content': '', 'refusal': None, 'tool_calls': []}
    """
    if not isinstance(body, dict) or "choices" in body or not isinstance(body.get("output"), list):
        return body
    parts: list[Fields] = []
    for item in items_of(body, "message"):
        parts += item["content"]
    texts = [part for part in parts if part["type"] == "output_text"]
    refusals = [part["refusal"] for part in parts if part["type"] == "refusal"]
    thoughts: list[Fields] = []
    for item in items_of(body, "reasoning"):
        thoughts += item.get("content") or item.get("summary") or []
    message = {
        "content": "".join(part["text"] for part in texts),
        "reasoning_content": "\n".join(part["text"] for part in thoughts),
        "refusal": refusals[0] if refusals else None,
        "tool_calls": items_of(body, "function_call"),
    }
    tokens: list[Fields] = []
    for part in texts:
        tokens += part.get("logprobs") or []
    choice = {
        "message": message,
        "finish_reason": finish_reason_of(body, message),
        "logprobs": {"content": tokens} if tokens else None,
    }
    usage = body.get("usage") or {}
    counts = {
        "prompt_tokens": usage.get("input_tokens"),
        "prompt_tokens_details": usage.get("input_tokens_details"),
    }
    return {"model": body.get("model"), "choices": [choice], "usage": counts}


def items_of(body: Fields, kind: str) -> list[Fields]:
    """Return the items of one kind that a response has put out."""
    return [item for item in body["output"] if item["type"] == kind]


def finish_reason_of(body: Fields, message: Fields) -> str | None:
    """Return how a response ended, as a chat completion says it; None if it is not finished."""
    if message["tool_calls"]:
        return "tool_calls"
    reason = (body.get("incomplete_details") or {}).get("reason") or body["status"]
    if reason == "failed":
        return "error"
    return FINISH_REASONS.get(str(reason))
