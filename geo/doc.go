// Package geo says where an address is and how far that is in milliseconds.
//
// It compiles databases (mmdb), an operator's overrides and, on request, built-in demo places into one immutable
// Atlas: a compact prefix table that is read without a lock and without an allocation. It also holds the prior for the
// round trip between two places, and the grid of cells that steering groups clients by.
//
// It never chooses a region, never looks an address up over the network, never reads a database on the path of a
// query, and ships no third-party data.
package geo
