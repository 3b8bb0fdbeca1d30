package openai

import "encoding/json"

// appendQuoted appends s as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // a string always marshals
		return append(dst, '"', '"')
	}
	return append(dst, b...)
}
