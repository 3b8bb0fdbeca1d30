// Package kvevents follows what an engine says of its own KV cache: the stream of cache events that vLLM, SGLang and
// others publish over ZeroMQ.
//
// A message has three frames: a topic, a sequence number (8 bytes, big endian) and a MessagePack batch
//
//	[seconds, [event, ...], data_parallel_rank]
//
// whose events are positional arrays, ["BlockStored", hashes, parent, tokens, block_size, lora_id, medium, lora_name,
// extra_keys, group_idx, spec_kind, sliding_window, locality], in older engines and maps of the same names with a "type"
// in newer ones. Both are read; what is not known is stepped over and counted. Hashes are integers or bytes and come out
// as 64-bit keys; tokens are not kept.
//
// # Order
//
// Sequence numbers count from 0. One ahead is the next; one further ahead is a gap, which the engine's replay socket
// fills if it is given and still remembers, and which is a doubt otherwise. A number that goes back, and a port where
// nobody listens any more, mean that the engine has restarted with an empty cache. A replay answers with two or three
// frames, for engines used to leave the topic out, and ends with number 2^64-1.
//
// # What it never does
//
// It never queues: a batch is handed to the sink by the goroutine that read it, and while the sink is busy the engine's
// own queue fills, which loses batches in the end, and that shows as a gap. It never believes a length, never keeps a
// prompt's tokens, and never decides what a block is worth.
package kvevents
