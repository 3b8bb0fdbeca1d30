// Package console contains the web console of a node: the static files, the login by token, and a stream of live figures.
//
// The console shows what the admin API returns and changes things through the same calls; it has no calls of its own for
// that. The package knows neither the tiers nor the types of the API: the admin server gives it feeds, which are read for
// all viewers together, and functions that identify callers.
package console
