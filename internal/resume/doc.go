// Package resume continues a stream of generated text whose worker failed on another worker, transparently for
// the client. It decides which requests may be continued, writes the continuation request, and joins the two
// responses.
//
// A request is resumable if the rest of its response depends only on the prompt and the text so far: plain
// text, one choice, and only parameters known to mean the same in the middle of a response. ExamineRequest
// checks this and returns the reason if not. A chat continues as its final, unfinished assistant message, a
// completion as a longer prompt.
//
// A Splicer follows one stream. It passes whole events only, so that a cut never splits an event, and keeps the
// escaped text. After a cut it rewrites the events of the second worker like those of the first: the same id,
// time and model, no second role, the usage of both. Trailing white space of the text is not sent back, because
// chat templates trim it: the continuation produces it again, and the splicer removes it.
//
// Accuracy: the tokens of the text so far are counted as one per event, as engines send them, or estimated by
// bytes if events clearly have more. Prompt and completion counts then shift by the same amount; their sum is
// the engine's own. At a temperature above 0 the continuation is statistically equivalent, not identical; a
// seed restarts.
//
// The package never chooses the endpoint, never blocks, and never keeps more text than its limit.
package resume
