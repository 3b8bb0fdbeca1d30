// Package openai reads the parts of an OpenAI-style request and answer that a router must know, and writes errors in
// the shape that OpenAI's clients read.
//
// It decides whether a body is a JSON object that can be routed at all, what it asks for, how long its prompt is, and
// how much of a stream has passed. It never decodes a whole body, never changes a prompt, and never keeps one: what it
// returns are views into the caller's bytes.
package openai
