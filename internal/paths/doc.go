// Package paths decides which request paths and gRPC methods pass to workers.
//
// Only inference passes. An engine has one HTTP server for inference and for its own management (loading and unloading
// models, sleeping, flushing caches, other tenants' prompts in /slots), so a path that passes without being listed hands
// the worker to any tenant. Both tiers ask this package; what it does not name is answered 404.
//
// A path is compared byte by byte as the client wrote it. Doubled slashes, dot segments, escapes, another case or a
// trailing slash make another path, which is not listed.
//
// Of engines' own generation paths none passes by default. Each engine also has OpenAI's paths, so nothing is lost, and
// their bodies manage the engine or choose a model where no fence reads it: Ollama's keep_alive unloads a model and its
// options.num_ctx reloads it; SGLang's and TGI's /generate name no model at all; llama.cpp's /completion chooses a slot.
// The spec key routing.extra_paths adds them one by one; their usage and limits are then read as the engine writes them.
//
// The package never reads a body and keeps no state.
package paths
