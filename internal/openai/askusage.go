package openai

// Streams reports whether a path's streams state their usage only when stream_options asks for it. Those of
// /v1/responses always do.
func Streams(path string) bool { return path == PathChat || path == PathCompletions }

// asksUsage is the member that makes an engine state the usage of a stream.
const asksUsage = `"include_usage":true`

// MayAskUsage reports whether Wording.AskUsage can be used on a request: it is streamed, its caller did not ask for usage, and
// nothing in its options makes the question mean more than one event at the end (continuous_usage_stats, which vLLM
// heeds only beside include_usage) or is for the engine to refuse.
func (e *Envelope) MayAskUsage() bool { return e.Stream && !e.IncludeUsage && !e.oddOptions }

// usageSplice says what part of the body is replaced, and by what.
func (e *Envelope) usageSplice(body []byte) (at, end int, text string) {
	options := body[e.optionsStart:e.optionsEnd]
	if len(options) == 0 {
		at = space(body, 0) + 1 // the model stands in the object, so that it is not empty
		return at, at, `"stream_options":{` + asksUsage + `},`
	}
	o, ok := open(options)
	if !ok { // null
		return e.optionsStart, e.optionsEnd, "{" + asksUsage + "}"
	}
	members := 0
	for key, v, ok := o.next(); ok; key, v, ok = o.next() {
		if string(key) == "include_usage" {
			end = e.optionsStart + o.i
			return end - len(v), end, "true"
		}
		members++
	}
	at = e.optionsStart + 1
	if members == 0 {
		return at, at, asksUsage
	}
	return at, at, asksUsage + ","
}

// options reads stream_options.
func (e *Envelope) options(v []byte, end int) {
	e.optionsStart, e.optionsEnd = end-len(v), end
	e.IncludeUsage, e.oddOptions = readOptions(v)
}

// readOptions says whether options ask for usage, and whether they are such that nothing may be added to them. Engines
// differ in which of two equal members they take, and some take 1 or "yes" for true.
func readOptions(v []byte) (usage, odd bool) {
	o, ok := open(v)
	if !ok {
		return false, string(v) != "null"
	}
	seen := false
	for {
		key, v, ok := o.next()
		if !ok {
			return usage, odd || o.bad
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
