package gpu

// allMessages are the messages of a request: in Anthropic's API the system prompt is a separate field.
func (b *requestBody) allMessages(k endpointKind) []chatMessage {
	if k != kindAnthropic || !isSet(b.System) {
		return b.Messages
	}
	return append([]chatMessage{{Role: "system", Content: b.System}}, b.Messages...)
}

// stopReason is the reason of an answer's end in Anthropic's API.
func (j *generationJob) stopReason() string {
	if j.finishReason == "length" {
		return "max_tokens"
	}
	return "end_turn"
}
