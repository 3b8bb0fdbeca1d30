package openai

// StatesUsageOnRequest reports whether streams of a path include usage only if stream_options asks for it.
// Those of /v1/responses always do.
func StatesUsageOnRequest(path string) bool { return path == PathChat || path == PathCompletions }

// includeUsageMember is the member that makes an engine report the usage of a stream.
const includeUsageMember = `"include_usage":true`

// MayRequestUsage reports whether EditedBody.RequestUsage can be used on a request: it is streamed and does not
// ask for usage. Its stream options must neither change the meaning of include_usage from one event at the end
// (continuous_usage_stats, which vLLM applies only together with include_usage) nor be invalid.
func (e *Envelope) MayRequestUsage() bool { return e.Stream && !e.IncludeUsage && !e.oddOptions }

// usageEdit returns the span of the body to replace and the replacement.
func (e *Envelope) usageEdit(body []byte) (at, end int, text string) {
	options := body[e.optionsStart:e.optionsEnd]
	if len(options) == 0 {
		at = skipSpace(body, 0) + 1 // the object is not empty: it contains the model
		return at, at, `"stream_options":{` + includeUsageMember + `},`
	}
	o, ok := openObject(options)
	if !ok { // null
		return e.optionsStart, e.optionsEnd, "{" + includeUsageMember + "}"
	}
	members := 0
	for key, v, ok := o.nextMember(); ok; key, v, ok = o.nextMember() {
		if string(key) == "include_usage" {
			end = e.optionsStart + o.pos
			return end - len(v), end, "true"
		}
		members++
	}
	at = e.optionsStart + 1
	if members == 0 {
		return at, at, includeUsageMember
	}
	return at, at, includeUsageMember + ","
}

// readStreamOptions parses stream_options.
func (e *Envelope) readStreamOptions(v []byte, end int) {
	e.optionsStart, e.optionsEnd = end-len(v), end
	e.IncludeUsage, e.oddOptions = parseStreamOptions(v)
}

// parseStreamOptions reports whether the options ask for usage, and whether they are unusual so that nothing
// may be added. Engines differ in which of two equal members they use, and some accept 1 or "yes" as true.
func parseStreamOptions(v []byte) (usage, odd bool) {
	o, ok := openObject(v)
	if !ok {
		return false, string(v) != "null"
	}
	seen := false
	for {
		key, v, ok := o.nextMember()
		if !ok {
			return usage, odd || o.malformed
		}
		switch string(key) {
		case "include_usage":
			usage = string(v) == "true"
			odd = odd || seen || !usage && string(v) != "false" && string(v) != "null"
			seen = true
		case "continuous_usage_stats":
			odd = odd || string(v) != "false" && string(v) != "null"
		}
	}
}
