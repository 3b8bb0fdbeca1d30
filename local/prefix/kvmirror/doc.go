// Package kvmirror mirrors what one engine reports as cached, and links it to the blocks of prompts.
//
// An engine identifies its blocks by hashes of tokens, and the prefix index by hashes of bytes. Neither can be converted
// to the other, so a Mirror matches them by time and length: MatchPrompt takes an answered prompt with its token counts
// and finds the chain of engine blocks that was stored for it. From then on the prompt's blocks are known to be cached
// until an engine event removes them. MatchOutcome is the result of a match.
//
// The mirror has no clock, goroutine or lock, and one writer. Tests of package prefix run it against a simulated engine.
package kvmirror
