// Package openai parses the parts of OpenAI-style requests and responses that routing needs, and writes errors
// in the shape that OpenAI's clients parse. Envelope is the parsed request, EditedBody a body with edits,
// StreamMeter and BodyMeter read usage from responses, and Error is a refusal.
//
// It determines whether a body is a JSON object that can be routed, what it asks for, how long its prompt is,
// and how much of a stream has passed. It never decodes a whole body, never changes a prompt, and never keeps
// one: results are views into the caller's bytes.
package openai
