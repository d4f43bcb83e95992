"""Loading models, and reading them with float32 logits in batches."""
