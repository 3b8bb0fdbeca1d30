//go:build !linux

package http1

// loopClient is a connection of a client.
type loopClient struct{}

func (*loopClient) currentRef() LoopRef          { return LoopRef{} }
func (*loopClient) wakeTurn(uint64)              {}
func (*loopClient) abortTurn(uint64)             {}
func (*loopClient) splitBody(body []byte) []byte { return body }
