// Package paths decides which request paths and gRPC methods are forwarded to workers.
//
// Only inference is. An engine has one HTTP server for inference and for its management (loading and unloading
// models, sleeping, flushing caches, other tenants' prompts in /slots). A management path that were forwarded
// by mistake would give any tenant control of the worker. Both tiers use this package; a path that it does not
// list is answered with 404.
//
// A path is compared byte by byte as the client wrote it. Doubled slashes, dot segments, escapes, another case
// or a trailing slash make it a different path, which is not listed.
//
// Engine-specific generation paths are not forwarded by default. Each engine also has OpenAI's paths, and the
// bodies of its own can manage the engine or select a model where no check reads it: Ollama's keep_alive
// unloads a model and its options.num_ctx reloads it; SGLang's and TGI's /generate name no model; llama.cpp's
// /completion selects a slot. The spec key routing.extra_paths adds paths one by one; their usage and limits
// are then read in the engine's format.
//
// The package never reads a body and keeps no state.
package paths
