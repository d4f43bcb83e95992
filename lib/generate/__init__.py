"""Everything that needs the model: responses, token logits, P(True), MC dropout."""
