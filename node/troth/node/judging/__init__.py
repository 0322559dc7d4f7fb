"""A verifier's judgement of an inferencer's trace: root, states, tokens, and what many tasks say together."""
