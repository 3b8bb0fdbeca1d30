// Package rtt aggregates measured round-trip times for a gateway's summaries: those to client networks, by the cell of
// their location, and those to other regions' gateways.
//
// A report contains medians, so that single slow connections and clients that delay acknowledgements on purpose hardly
// change it. Memory is bounded and old samples lose weight.
package rtt
