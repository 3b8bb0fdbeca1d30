// Package resume continues a stream of generated text whose worker was lost, on another one, so that the client cannot
// tell: it decides which requests may be continued, writes the request that continues one, and joins the two answers.
//
// A request is resumable when the rest of its answer depends on nothing but the prompt and the text so far: plain text,
// one choice, and only parameters that are known to mean the same in the middle of an answer as at its beginning. Examine
// says so, and names the reason where it is not so. A chat goes on as its final, unfinished assistant message, a
// completion as a longer prompt.
//
// A Seam follows one stream. It passes whole events only, so that no event is torn by a cut, and keeps the text, escaped
// as it came. After a cut it makes the other worker's events look like the first one's: the same id, time and model, no
// second role, the usage of both. What the text ends with in white space is not sent along, because chat templates trim
// it: the continuation brings it again, and the seam takes it out.
//
// Errors: the tokens of the text so far are counted by events, one each, as engines send them; where an event carries
// clearly more than a token they are estimated by bytes. Prompt and completion then shift by as much, and their sum is the
// engine's own. At a temperature above 0 the continuation is statistically the same text, not the same one; a seed begins
// anew.
//
// The package never decides where to go on, waits for nothing, and never keeps more text than it is told.
package resume
