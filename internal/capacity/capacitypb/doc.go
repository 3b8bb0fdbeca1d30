// Package capacitypb is the generated wire form of package capacity.
//
// It decides nothing: package capacity alone converts to and from it, and checks the bounds. No other package imports it.
package capacitypb
