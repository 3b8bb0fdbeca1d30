package openai

// OnlyUsage is what Unasked takes an event's data for.
func OnlyUsage(data []byte) bool { return onlyUsage(data) }
