// Package kvevents follows the stream of KV cache events that vLLM, SGLang and others publish over ZeroMQ.
//
// A message has three frames: a topic, a sequence number (8 bytes, big endian) and a MessagePack batch
//
//	[seconds, [event, ...], data_parallel_rank]
//
// whose events are positional arrays, ["BlockStored", hashes, parent, tokens, block_size, lora_id, medium, lora_name,
// extra_keys, group_idx, spec_kind, sliding_window, locality], in older engines and maps of the same names with a
// "type" in newer ones. Both are decoded; unknown ones are skipped and counted. Hashes are integers or bytes and
// become 64-bit keys; tokens are not kept.
//
// # Order
//
// Sequence numbers count from 0. The next number is in order. A larger one is a gap, which the engine's replay socket
// fills if it is configured and still has the batches; otherwise the gap is reported to the sink. A number that goes
// back, or a port that refuses connections, means that the engine has restarted with an empty cache. A replay answers
// with two or three frames, because older engines omit the topic, and ends with number 2^64-1.
//
// # Bounds
//
// The package does not queue: the reading goroutine passes each batch to the sink. While the sink is busy the
// engine's own queue fills and finally loses batches, which shows as a gap. Lengths in messages are checked against
// the data, a prompt's tokens are not kept, and the package does not judge what a block is worth.
//
// The MessagePack reader is the package's own: it reads in place and skips tokens, so a step of 512 blocks takes 55 us
// and no allocation, where go-msgpack, which Raft uses, takes 1.5 ms and 17,400 allocations (BenchmarkDecodeBatch).
package kvevents
