// Package geo locates client addresses and estimates round trips between locations.
//
// BuildAtlas compiles databases (mmdb), an operator's overrides and, on request, built-in demo locations into one
// immutable Atlas: a compact prefix table that is read without locks or allocations. Package geofiles reads the files
// and replaces the Atlas when they change. PriorRTT estimates a round trip from two locations, BlendRTTs combines it with measurements. Cell is a
// square of the grid by which steering groups clients. ScopeMap reduces an Atlas to one value per network, with the
// widest possible ECS scopes.
//
// The package is pure: it does not choose a region, looks no address up over the network, reads no file by itself and
// contains no third-party data.
package geo
