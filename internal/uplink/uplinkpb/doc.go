// Package uplinkpb is the generated wire form of package uplink's messages.
//
// It has no logic: only package uplink converts to and from it and checks the bounds. No other package imports it.
package uplinkpb
