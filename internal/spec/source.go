package spec

import _ "embed" // the files whose comments document the keys

//go:embed types.go
var typesSource string

//go:embed rules.go
var rulesSource string

//go:embed queueing.go
var queueingSource string

//go:embed budget.go
var budgetSource string

//go:embed issuer.go
var issuerSource string

//go:embed dnssec.go
var dnssecSource string

// TypeSources returns the source files that declare the spec's types. `config describe spec` prints their
// comments, so that each key is documented in one place.
func TypeSources() []string {
	return []string{typesSource, rulesSource, queueingSource, budgetSource, issuerSource, dnssecSource}
}
