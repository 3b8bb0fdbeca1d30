package spec

import _ "embed" // types.go, whose comments explain the keys

//go:embed types.go
var source string

// Source is the Go text of the spec's types: its comments are what `spillway config describe spec` prints.
func Source() string { return source }
