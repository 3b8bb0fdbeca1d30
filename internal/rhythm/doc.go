// Package rhythm decides when a tier makes its view anew: at once when news comes after a silence, not again within a gap
// however much comes then, and now and then without any. It never looks at the news.
package rhythm
