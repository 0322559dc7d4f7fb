"""The vLLM engine: whole models, continuous batching, a prefix cache. Only `core`, `noise` and `worker` import vLLM."""
