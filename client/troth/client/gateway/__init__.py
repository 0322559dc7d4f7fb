"""An OpenAI-compatible gateway on this machine: it holds the wallet, and every answer is verified and paid."""
