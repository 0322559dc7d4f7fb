"""Names that `vulture` sees nobody use, and why they stay: others call or read them. `make lint` reads this file."""

# ruff: noqa: B018, F821 - names alone

# Fields of structs and events of contracts, of messages and of files: their order is the ABI's or the format's.
_.answerer, _.claimer, _.docket, _.leave_blocks, _.offence_block, _.old_payout, _.suspension_pause
_.claims_version, _.content_hash, _.model_microseconds, _.prefill_nanoseconds, _.troth_network, _.ts
# Shown by a template, or as JSON by a command whose result is a dataclass.
_.most_blocks, _.redeemed_units, _.thinnest, _.sights
# Compared as a part of its tuple.
_.inode
# An exit code that typer gives.
_.USAGE
# What asyncio's protocols and html's parser call.
_.pause_writing, _.resume_writing, _.datagram_received, _.handle_starttag
# What libraries look at or call: jinja2, typer, uvicorn, ssl, numpy, starlette, rich, torch, tokenizers, UPnP, xdist.
_.intercepted_binops, _.call_binop, _.put_together
_._add_completion, _.rich_markup_mode, _.__signature__, _.__annotations__
_.should_exit, _.capture_signals, _.configure_logging, _.main_loop
_.num_tickets, _.writeable, _.background, _.justify, _.allow_bf16_reduced_precision_reduction, _.pre_tokenizer
_.async_http_request, _.send_runtest_some, _.shutting_down, _.__class__
# What transformers calls of a cache, with arguments that ours need not.
_._attn_implementation, _.is_compileable, _.get_query_offset, _.get_mask_sizes, _.unused
# What vLLM calls by name: plug-ins, and methods of workers.
_.SlotNoise, _.add_request, _.is_argmax_invariant, _.is_pin_memory, _.troth_fix_rows
_.engine_index, _.iteration_stats, _.log_engine_initialized
# Methods of a chain node, which a request names.
_.eth_chainId, _.web3_clientVersion, _.eth_blockNumber, _.eth_getBlockByNumber, _.eth_feeHistory, _.eth_getLogs
_.eth_call
# Run by a process whose program is a text, or fixtures that a test takes for what they do.
_.serve_echo, _.in_two_parts
# Places of a signature's hints, all named.
_.U, _.H_Y, _.SLOPE_HINT
