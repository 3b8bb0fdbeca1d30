package spec

import (
	"fmt"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// Values of routing.hash_key; HashKeyHeader precedes the name of a header.
const (
	HashKeySession = "session"
	HashKeyTenant  = "tenant"
	HashKeyPrefix  = "prefix"
	HashKeyHeader  = "header:"
)

// checkHashKey checks routing.hash_key.
func (j *validator) checkHashKey(s string) {
	const path = "$.routing.hash_key"
	name, ok := strings.CutPrefix(s, HashKeyHeader)
	switch {
	case ok && !isToken(name):
		j.addProblem(path, fmt.Sprintf("hash_key names the malformed header %q", name), `write a header's name after "header:", such as "header:X-Conversation"`)
	case !ok && s != HashKeySession && s != HashKeyTenant && s != HashKeyPrefix:
		j.addProblem(path, fmt.Sprintf("unknown hash_key %q", s), strict.SuggestName(s, []string{HashKeySession, HashKeyTenant, HashKeyPrefix, HashKeyHeader + "NAME"}, "keys"))
	}
}

// isToken reports whether s is a valid header name (RFC 9110, 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return s != "" && len(s) <= maxNameBytes
}
