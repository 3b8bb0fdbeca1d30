package spec

import _ "embed" // the files whose comments explain the keys

//go:embed types.go
var typesSource string

//go:embed rules.go
var rulesSource string

//go:embed queueing.go
var queueingSource string

//go:embed hedging.go
var hedgingSource string

//go:embed warmth.go
var warmthSource string

//go:embed budget.go
var budgetSource string

//go:embed issuer.go
var issuerSource string

//go:embed dnssec.go
var dnssecSource string

// Sources are the texts of the files that declare the spec's types: their comments are the words that
// `config describe spec` prints, so that a key is explained in one place.
func Sources() []string {
	return []string{typesSource, rulesSource, queueingSource, hedgingSource, warmthSource, budgetSource, issuerSource, dnssecSource}
}
