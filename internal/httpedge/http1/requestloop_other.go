//go:build !linux

package http1

import (
	"context"
	"net"
)

// requestLoop serves requests without goroutines, which needs epoll (Linux).
type requestLoop struct{}

func (*Server) serveOnLoop(net.Listener, context.Context) (error, bool) { return nil, false }

func (*requestLoop) base() context.Context    { return context.Background() }
func (*requestLoop) stopAccepting()           {}
func (*requestLoop) closeIdle() int           { return 0 }
func (*requestLoop) closeAll()                {}
func (*requestLoop) awaitEnd()                {}
func (*requestLoop) returnConn(int, int) bool { return false }

func closeDescriptor(int) {}

func dupDescriptor(uintptr) int { return -1 }
