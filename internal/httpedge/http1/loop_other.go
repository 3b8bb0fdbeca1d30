//go:build !linux

package http1

// canDetach reports whether streams can be detached, which needs epoll (Linux).
const canDetach = false

type streamLoop struct{}

func (*streamLoop) postStream(*detachedStream) {}

// detachedStream is one detached stream.
type detachedStream struct {
	loop    *streamLoop
	conn    *serverConn
	writer  *responseWriter
	body    *responseBody
	handler DetachHandler
	slot    int
}

func (*detachedStream) attachToLoop() bool            { return false }
func (*detachedStream) readLent([]byte) (int, error)  { return 0, errWouldBlock }
func (*detachedStream) writeLent([]byte) (int, error) { return 0, errWouldBlock }

func (*readBufConn) reclaimDescriptor() bool { return true }

func (*clientWriter) writeNow(uintptr) {}
